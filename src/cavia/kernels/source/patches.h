// Sums and products of the 3×3 patches of a picture, over all its places, without looking at each patch: a product of
// two numbers of a patch depends on their distance only, but for the places at the border.
#pragma once
#include "first_block.h"

template <int CHANNELS>
class PatchProducts {
 public:
  static constexpr int TAPS = 9 * CHANNELS, PAIRS = CHANNELS * CHANNELS;
  double sums[TAPS] = {}, products[TAPS][TAPS] = {};

  explicit PatchProducts(int side)
      : side_(side), pitch_((side + LANES - 1) / LANES * LANES + 2 * LANES), plane_((size_t)(side + 2) * pitch_),
        planes_(CHANNELS * plane_ + 2 * LANES, true), turned_(CHANNELS * plane_ + 2 * LANES, true) {}

  // The picture [side][side][CHANNELS].
  void add(const float* picture) {
    for (int i = 0; i < side_; i++)
      for (int c = 0; c < CHANNELS; c++) {
        const float* from = picture + (size_t)i * side_ * CHANNELS + c;
        float* row = at(planes_, c, i);
        for (int j = 0; j < side_; j++) row[j] = from[j * CHANNELS];
        for (int j = 0; j < 3; j++) {
          at(turned_, c, j)[i] = row[j];
          at(turned_, c, side_ - 1 - j)[i] = row[side_ - 1 - j];
        }
      }
    add_sums();
    for (int dy = 0; dy <= 2; dy++)
      for (int dx = dy ? -2 : 0; dx <= 2; dx++) add_distance(dy, dx);
  }

 private:
  const int side_, pitch_;
  const size_t plane_;
  Block<float> planes_, turned_;  // rows, and the three first and last columns as rows; zeros around them

  float* at(const Block<float>& planes, int channel, int row) const {
    return planes + channel * plane_ + (size_t)row * pitch_ + LANES;
  }
  float value(int channel, int i, int j) const {
    return i < 0 || j < 0 || i >= side_ || j >= side_ ? 0.f : at(planes_, channel, i)[j];
  }

  // Σ over rows from `first` up to `last` of row[j] · other row[j + dx], other row: dy further on.
  void correlate(const Block<float>& planes, int first, int last, int dy, int dx, double products[PAIRS]) const {
    constexpr int MANY = 28;  // rows summed in single precision
    for (int p = 0; p < PAIRS; p++) products[p] = 0;
    for (int start = first; start < last; start += MANY) {
      vec sum[PAIRS] = {};
      for (int i = start; i < last && i < start + MANY; i++)
        for (int j = 0; j < side_; j += LANES) {
          vec there[CHANNELS];
          UNROLL for (int c = 0; c < CHANNELS; c++) there[c] = load(at(planes, c, i + dy) + j + dx);
          UNROLL for (int c = 0; c < CHANNELS; c++) {
            const vec here = load(at(planes, c, i) + j);
            UNROLL for (int d = 0; d < CHANNELS; d++) sum[c * CHANNELS + d] += here * there[d];
          }
        }
      for (int p = 0; p < PAIRS; p++) products[p] += total(sum[p]);
    }
  }

  // A patch's number at offset o, over all places, is each number of the picture once, but for the first row (or
  // column) if o is +1 and the last if o is −1. Those are rows, columns and corners, for o = −1, 0, 1.
  static double inside(double all, const double rows[3], const double columns[3], const double corners[3][3], int y,
                       int x) {
    return all - rows[y] - columns[x] + corners[y][x];
  }

  void add_sums() {
    for (int c = 0; c < CHANNELS; c++) {
      double all = 0, rows[3] = {}, columns[3] = {}, corners[3][3] = {};
      for (int i = 0; i < side_; i++) {
        vec sum = {};
        for (int j = 0; j < side_; j += LANES) sum += load(at(planes_, c, i) + j);
        all += total(sum);
      }
      for (int i = 0; i < side_; i++) {
        rows[0] += value(c, side_ - 1, i);
        rows[2] += value(c, 0, i);
        columns[0] += value(c, i, side_ - 1);
        columns[2] += value(c, i, 0);
      }
      for (int y = 0; y < 3; y += 2)
        for (int x = 0; x < 3; x += 2) corners[y][x] = value(c, y ? 0 : side_ - 1, x ? 0 : side_ - 1);
      for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++) sums[(3 * y + x) * CHANNELS + c] += inside(all, rows, columns, corners, y, x);
    }
  }

  void add_distance(int dy, int dx) {
    double all[PAIRS], rows[3][PAIRS] = {}, columns[3][PAIRS] = {}, corners[3][3][PAIRS] = {};
    correlate(planes_, 0, side_, dy, dx, all);
    correlate(planes_, side_ - 1, side_, dy, dx, rows[0]);
    correlate(planes_, 0, 1, dy, dx, rows[2]);
    if (dx <= 0) correlate(turned_, side_ - 1, side_, dx, dy, columns[0]);  // else the other is outside
    if (dx >= 0) correlate(turned_, 0, 1, dx, dy, columns[2]);
    for (int y = 0; y < 3; y += 2)
      for (int x = 0; x < 3; x += 2)
        for (int p = 0; p < PAIRS; p++) {
          const int i = y ? 0 : side_ - 1, j = x ? 0 : side_ - 1;
          corners[y][x][p] = (double)value(p / CHANNELS, i, j) * value(p % CHANNELS, i + dy, j + dx);
        }
    for (int y = 0; y + dy < 3; y++)
      for (int x = 0; x < 3; x++)
        if (x + dx >= 0 && x + dx < 3)
          for (int p = 0; p < PAIRS; p++) {
            double r[3], c[3], rc[3][3];
            for (int a = 0; a < 3; a++) {
              r[a] = rows[a][p];
              c[a] = columns[a][p];
              for (int b = 0; b < 3; b++) rc[a][b] = corners[a][b][p];
            }
            const int one = (3 * y + x) * CHANNELS + p / CHANNELS;
            const int other = (3 * (y + dy) + x + dx) * CHANNELS + p % CHANNELS;
            const double product = inside(all[p], r, c, rc, y, x);
            products[one][other] += product;
            if (dy || dx) products[other][one] += product;
          }
  }
};
