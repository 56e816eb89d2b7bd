// Batch norm by the statistics of one task. The sign of γ is folded into the convolution's weights, so that the norm
// is a rising map and pooling can come first: max(norm(y)) = norm(max(y)).
#pragma once
#include <cmath>
#include "vector.h"

// Of one picture and channel: sums of y − origin and of its square. An origin near the mean keeps the digits.
struct Moments {
  double *origin, *sum, *squares;  // [width] each
  Moments(double* all, int picture, int width)
      : origin(all + (size_t)picture * 3 * width), sum(origin + width), squares(sum + width) {}
};

struct Norm {
  const int width;
  const double count, epsilon;  // count: numbers in a channel of the task
  double *mean, *inverse;  // [width]: of y, and 1 / its standard deviation; kept for the backward pass
  Block<float> scale, shift, centre;  // norm(y) = scale·y + shift; centre: the mean, rounded

  Norm(double* kept, int width, double count, double epsilon)
      : width(width), count(count), epsilon(epsilon), mean(kept), inverse(kept + width), scale(width), shift(width),
        centre(width) {}

  void measure(double* moments, int pictures) {
    const double each = count / pictures;
    for (int c = 0; c < width; c++) mean[c] = inverse[c] = 0;
    for (int n = 0; n < pictures; n++) {
      Moments m(moments, n, width);
      for (int c = 0; c < width; c++) mean[c] += (m.origin[c] + m.sum[c] / each) / pictures;
    }
    for (int n = 0; n < pictures; n++) {
      Moments m(moments, n, width);
      for (int c = 0; c < width; c++) {
        const double own = m.sum[c] / each, off = m.origin[c] + own - mean[c];
        inverse[c] += ((m.squares[c] - own * m.sum[c]) + each * off * off) / count;
      }
    }
    for (int c = 0; c < width; c++) inverse[c] = 1 / std::sqrt((inverse[c] < 0 ? 0 : inverse[c]) + epsilon);
  }

  void prepare(const float* gamma, const float* beta) {  // gamma without its sign
    for (int c = 0; c < width; c++) {
      const double a = gamma[c] * inverse[c];
      scale[c] = a;
      shift[c] = beta[c] - mean[c] * a;
      centre[c] = mean[c];
    }
  }
};

// The gradient by y, before pooling's choice is added: own·(y − centre) + constant.
struct NormGradient {
  Block<float> own, constant;
  Block<double> own_exact, constant_exact;

  // sums: for each picture Σ d and Σ d·(y − centre), d the gradient by the norm's output. Adds to the gradients of
  // γ (without its sign) and β.
  NormGradient(const Norm& norm, const double* sums, int pictures, double* gamma, double* beta)
      : own(norm.width), constant(norm.width), own_exact(norm.width), constant_exact(norm.width) {
    const int width = norm.width;
    for (int c = 0; c < width; c++) {
      double first = 0, second = 0;
      for (int n = 0; n < pictures; n++) {
        first += sums[(size_t)n * 2 * width + c];
        second += sums[((size_t)n * 2 + 1) * width + c];
      }
      second = norm.inverse[c] * (second + (norm.centre[c] - norm.mean[c]) * first);
      if (gamma) {
        gamma[c] += second;
        beta[c] += first;
      }
      const double a = norm.scale[c];
      own_exact[c] = -a * norm.inverse[c] * second / norm.count;
      constant_exact[c] = -a * first / norm.count;
      own[c] = own_exact[c];
      constant[c] = constant_exact[c] + own_exact[c] * (norm.centre[c] - norm.mean[c]);
    }
  }
};
