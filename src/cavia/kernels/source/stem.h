// What the stem is given, as `kernels/stem.py` lays it out.
#pragma once
#include "team.h"
#include "later_block.h"
#include "patches.h"

constexpr int MOST_BLOCKS = 4;

struct Stem {
  int32_t tasks, pictures, channels, side, width, blocks, threads;
  int32_t keeps;                         // what the backward pass needs is kept; else buffers have room for one task
  double epsilon;                        // added to the variance by the norms
  const float* x;                        // [tasks][pictures][side][side][channels]
  const float* weights[MOST_BLOCKS];     // [3][3][in][width]
  const float* turned[MOST_BLOCKS];      // [3][3][width][in], for the backward pass
  const float* gamma[MOST_BLOCKS];       // [width]
  const float* beta[MOST_BLOCKS];        // [width]
  float* pooled[MOST_BLOCKS];            // [tasks][pictures][half][half][width]
  uint8_t* index[MOST_BLOCKS];           // as pooled: which place of its window
  float* map[MOST_BLOCKS];               // [tasks][pictures][side][side][width], from the second block on
  double* statistics;                    // [tasks][blocks][3][width]: mean, 1 / deviation, origin
  float* out;                            // [tasks][pictures][half][half][width]
  const float* gradient;                 // by out
  float* weight_gradients[MOST_BLOCKS];  // as weights
  double* gamma_gradients;               // [blocks][width]
  double* beta_gradients;

  int side_of(int block) const { return side >> block; }
  size_t map_size(int block) const { return (size_t)side_of(block) * side_of(block) * width; }
  size_t pooled_size(int block) const { return map_size(block + 1); }
  // The place of a picture in a buffer that may have room for one task only.
  size_t kept(int task, int picture) const { return (size_t)(keeps ? task : 0) * pictures + picture; }
  const float* picture(int task, int n) const {
    return x + ((size_t)task * pictures + n) * side * side * channels;
  }
  double* statistics_of(int task, int block) const { return statistics + ((size_t)task * blocks + block) * 3 * width; }
  int first_of(int rank) const { return (int)((int64_t)pictures * rank / threads); }
};

// What the first block's convolution is given, as `kernels/first.py` lays it out.
struct First {
  enum Job { CHOOSE, FOLLOW, GRADIENT };
  int32_t job, pictures, channels, side, width;
  const float* x;          // [pictures][side][side][channels]
  float* weights;          // [3][3][channels][width]; written by GRADIENT
  const float* gamma;      // [width], for CHOOSE: where it is 0 the first place is taken
  float* pooled;           // [pictures][half][half][width]; read by GRADIENT
  uint8_t* index;          // as pooled; written by CHOOSE
  double *sums, *products;  // of all patches, [9·channels] and its square; written by CHOOSE
};

// The layers' weights and γ with the sign of γ folded into the weights.
struct Layers {
  Block<float> sign, gamma;  // [blocks][width]
  Block<float> first;        // [9·channels][width]
  Block<float> factors;      // of the later blocks, [blocks − 1][36·width·width]
  const size_t factors_size;
  const int width;

  Layers(const Stem& stem, bool backward)
      : sign(stem.blocks * stem.width), gamma(stem.blocks * stem.width), first(9 * stem.channels * stem.width),
        factors((size_t)(stem.blocks - 1) * PLACES * stem.width * stem.width),
        factors_size((size_t)PLACES * stem.width * stem.width), width(stem.width) {
    for (int b = 0; b < stem.blocks; b++)
      for (int c = 0; c < width; c++) {
        sign_of(b)[c] = stem.gamma[b][c] < 0 ? -1.f : 1.f;
        gamma_of(b)[c] = sign_of(b)[c] * stem.gamma[b][c];
      }
    for (int k = 0; k < 9 * stem.channels; k++)
      for (int c = 0; c < width; c++) first[k * width + c] = sign[c] * stem.weights[0][k * width + c];
    for (int b = 1; b < stem.blocks; b++)
      if (backward)
        to_factors(stem.turned[b], sign_of(b), nullptr, true, width, factors_of(b));
      else
        to_factors(stem.weights[b], nullptr, sign_of(b), false, width, factors_of(b));
  }
  float* sign_of(int block) const { return sign + block * width; }
  float* gamma_of(int block) const { return gamma + block * width; }
  float* factors_of(int block) const { return factors + (block - 1) * factors_size; }
};

constexpr int TOGETHER = 24;  // tiles of a convolution: they stay in the cache with their results
constexpr int SUMMED = 48;    // tiles of the weights' gradient: so seldom are its sums written to memory

// What a thread has for itself in both passes.
struct Member {
  const Stem& stem;
  const Layers& layers;
  Team& team;
  double* shared;  // two halves: while one is read the other is written
  const int rank, from, to, width;
  Block<double> statistics;  // [blocks][2][width], of the task at work
  Norm norms[MOST_BLOCKS];
  int turn = 0;

  Member(const Stem& stem, const Layers& layers, Team& team, double* shared, int rank)
      : stem(stem), layers(layers), team(team), shared(shared), rank(rank), from(stem.first_of(rank)),
        to(stem.first_of(rank + 1)), width(stem.width), statistics((size_t)2 * MOST_BLOCKS * stem.width),
        norms{norm(0), norm(1), norm(2), norm(3)} {}

  Norm norm(int block) {
    const double count = (double)stem.pictures * stem.side_of(block) * stem.side_of(block);
    return Norm(statistics + (size_t)2 * block * width, width, count, stem.epsilon);
  }
  double* half() const { return shared + (size_t)turn * 3 * stem.pictures * width; }
  // All have written; what is in the half that is returned may be read until the next exchange.
  double* exchange() {
    double* written = half();
    team.wait();
    turn = 1 - turn;
    return written;
  }
};
