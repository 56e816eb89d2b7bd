// 3×3 convolutions with as many channels out as in, by Winograd's algorithm F(4×4, 3×3): a tile of 6×6 places and the
// weights are transformed, multiplied place by place, and transformed back to 4×4 results: a quarter of the products.
// The points of interpolation are 0, ±√½, ±√2 and ∞, at which rounding is half of that at the usual 0, ±1, ±2, ∞.
#pragma once
#include "vector.h"

constexpr int PLACES = 36, SIDE = 6, STEP = 4;
constexpr int WIDE = 2 * LANES;  // channels that a product has in registers at once
constexpr float ROOT = 1.41421356237309505f, HALF_ROOT = 0.70710678118654752f;

// The products' factors of a layer are kept as [36][blocks of WIDE output channels][input channels][WIDE]; the last
// block is LANES wide if the channels are an odd multiple of LANES.

INLINE void transform_input(const vec d[6], vec o[6]) {
  o[0] = d[0] - 2.5f * d[2] + d[4];
  vec even = d[4] - 2.f * d[2], odd = HALF_ROOT * d[3] - ROOT * d[1];
  o[1] = even + odd;
  o[2] = even - odd;
  even = d[4] - .5f * d[2];
  odd = ROOT * d[3] - HALF_ROOT * d[1];
  o[3] = even + odd;
  o[4] = even - odd;
  o[5] = d[1] - 2.5f * d[3] + d[5];
}

INLINE void transform_output(const vec m[6], vec o[4]) {
  const vec sum = m[1] + m[2], difference = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  o[0] = m[0] + sum + sum2;
  o[1] = HALF_ROOT * difference + ROOT * difference2;
  o[2] = .5f * sum + 2.f * sum2;
  o[3] = (.5f * HALF_ROOT) * difference + (2.f * ROOT) * difference2 + m[5];
}

// The transpose of the output's transform, for the gradient of the weights.
INLINE void transform_gradient(const vec d[4], vec o[6]) {
  o[0] = d[0];
  vec even = d[0] + .5f * d[2], odd = HALF_ROOT * d[1] + (.5f * HALF_ROOT) * d[3];
  o[1] = even + odd;
  o[2] = even - odd;
  even = d[0] + 2.f * d[2];
  odd = ROOT * d[1] + (2.f * ROOT) * d[3];
  o[3] = even + odd;
  o[4] = even - odd;
  o[5] = d[3];
}

INLINE void transform_weights(const vec w[3], vec o[6]) {
  o[0] = w[0];
  vec even = (-2.f / 3) * w[0] + (-1.f / 3) * w[2], odd = (-ROOT / 3) * w[1];
  o[1] = even + odd;
  o[2] = even - odd;
  even = (1.f / 6) * w[0] + (1.f / 3) * w[2];
  odd = (ROOT / 6) * w[1];
  o[3] = even + odd;
  o[4] = even - odd;
  o[5] = w[2];
}

INLINE void transform_weights_back(const vec u[6], vec o[3]) {
  const vec sum = u[1] + u[2], difference = u[1] - u[2], sum2 = u[3] + u[4], difference2 = u[3] - u[4];
  o[0] = u[0] + (-2.f / 3) * sum + (1.f / 6) * sum2;
  o[1] = (-ROOT / 3) * difference + (ROOT / 6) * difference2;
  o[2] = (-1.f / 3) * sum + (1.f / 3) * sum2 + u[5];
}

INLINE size_t factor_at(int width, int place, int input, int output) {
  const int block = output / WIDE, left = width - block * WIDE;
  const int wide = left < WIDE ? left : WIDE;
  return (size_t)place * width * width + (size_t)block * WIDE * width + (size_t)input * wide + output % WIDE;
}

// weights [3][3][width in][width out] → factors. Input and output channels are multiplied by their signs; `flipped`
// turns each kernel by 180°, which with input and output exchanged is the convolution's own gradient.
static void to_factors(const float* weights, const float* in_sign, const float* out_sign, bool flipped, int width,
                       float* factors) {
  for (int input = 0; input < width; input++)
    for (int output = 0; output < width; output += LANES) {
      const vec sign = in_sign ? all(in_sign[input]) : load(out_sign + output);
      vec columns[SIDE][3];
      for (int j = 0; j < 3; j++) {
        vec w[3], o[SIDE];
        for (int i = 0; i < 3; i++) {
          const int k = flipped ? 8 - (3 * i + j) : 3 * i + j;
          w[i] = sign * load(weights + ((size_t)k * width + input) * width + output);
        }
        transform_weights(w, o);
        for (int i = 0; i < SIDE; i++) columns[i][j] = o[i];
      }
      for (int i = 0; i < SIDE; i++) {
        vec o[SIDE];
        transform_weights(columns[i], o);
        for (int j = 0; j < SIDE; j++) store(factors + factor_at(width, SIDE * i + j, input, output), o[j]);
      }
    }
}

// Gradients of factors → gradients of weights [3][3][width in][width out].
static void from_factors(const float* factors, const float* out_sign, int width, float* weights) {
  for (int input = 0; input < width; input++)
    for (int output = 0; output < width; output += LANES) {
      vec columns[3][SIDE];
      for (int j = 0; j < SIDE; j++) {
        vec u[SIDE], o[3];
        for (int i = 0; i < SIDE; i++) u[i] = load(factors + factor_at(width, SIDE * i + j, input, output));
        transform_weights_back(u, o);
        for (int i = 0; i < 3; i++) columns[i][j] = o[i];
      }
      for (int i = 0; i < 3; i++) {
        vec o[3];
        transform_weights_back(columns[i], o);
        for (int j = 0; j < 3; j++)
          store(weights + ((size_t)(3 * i + j) * width + input) * width + output, load(out_sign + output) * o[j]);
      }
    }
}

// How a map of side × side places is covered by tiles, and its copy with a border of zeros.
struct Grid {
  int side, tiles_in_row, tiles, padded;  // padded: the copy's side
  explicit Grid(int side)
      : side(side), tiles_in_row((side + STEP - 1) / STEP), tiles(tiles_in_row * tiles_in_row),
        padded(STEP * tiles_in_row + 2) {}
  int row(int tile) const { return STEP * (tile / tiles_in_row); }
  int column(int tile) const { return STEP * (tile % tiles_in_row); }
  size_t padded_size(int width) const { return (size_t)padded * padded * width; }
};

// Tiles in the form in which they are multiplied: [36][room][width]. The distance between places is no power of two,
// or all would share a few sets of the cache.
struct Tiles {
  const int room, width;
  const size_t stride;
  Block<float> data;
  Tiles(int room, int width)
      : room(room), width(width), stride((size_t)room * width + 16), data(PLACES * stride, true) {}
  float* at(int place, int slot) const { return data + place * stride + (size_t)slot * width; }

  void set_input(int slot, const float* padded, const Grid& grid, int tile) {
    const float* corner = padded + ((size_t)grid.row(tile) * grid.padded + grid.column(tile)) * width;
    set<SIDE, transform_input>(slot, corner, grid.padded);
  }

  void set_gradient(int slot, const float* padded, const Grid& grid, int tile) {
    const float* corner = padded + ((size_t)(grid.row(tile) + 1) * grid.padded + grid.column(tile) + 1) * width;
    set<STEP, transform_gradient>(slot, corner, grid.padded);
  }

  // The 4×4 results of a tile, for the channels from c on.
  INLINE_MEMBER void get_output(int slot, int c, vec result[STEP][STEP]) const {
    vec half[STEP][SIDE];
    UNROLL for (int j = 0; j < SIDE; j++) {
      vec m[SIDE], o[STEP];
      UNROLL for (int i = 0; i < SIDE; i++) m[i] = load(at(SIDE * i + j, slot) + c);
      transform_output(m, o);
      UNROLL for (int i = 0; i < STEP; i++) half[i][j] = o[i];
    }
    UNROLL for (int i = 0; i < STEP; i++) transform_output(half[i], result[i]);
  }

 private:
  // The FROM × FROM numbers at a corner of a map, transformed along both axes.
  template <int FROM, void transform(const vec*, vec*)>
  INLINE_MEMBER void set(int slot, const float* corner, int padded) {
    for (int c = 0; c < width; c += LANES) {
      vec half[SIDE][FROM];
      UNROLL for (int j = 0; j < FROM; j++) {
        vec d[FROM], o[SIDE];
        UNROLL for (int i = 0; i < FROM; i++) d[i] = load(corner + ((size_t)i * padded + j) * width + c);
        transform(d, o);
        UNROLL for (int i = 0; i < SIDE; i++) half[i][j] = o[i];
      }
      UNROLL for (int i = 0; i < SIDE; i++) {
        vec o[SIDE];
        transform(half[i], o);
        UNROLL for (int j = 0; j < SIDE; j++) store(at(SIDE * i + j, slot) + c, o[j]);
      }
    }
  }
};
