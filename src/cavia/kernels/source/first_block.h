// The first block: a direct convolution of 1 to 4 channels, its statistics and pooling in registers. Its map is never
// written. The gradient of its weights is a sum over the places that pooling took, and what the norm's own gradient
// adds: a function of the sums and products of the input's 3×3 patches.
#pragma once
#include "norm.h"

// A picture [side][side][CHANNELS] with a border of zeros.
struct Padded {
  const int side, channels, stride;  // stride: floats in a row
  Block<float> data;
  Padded(int side, int channels)
      : side(side), channels(channels), stride((side + 2 + COLUMNS) * channels),
        data((size_t)(side + 4) * stride + 4 * LANES, true) {}
  void set(const float* picture) {
    for (int i = 0; i < side; i++)
      std::memcpy(data + (size_t)(i + 1) * stride + channels, picture + (size_t)i * side * channels,
                  sizeof(float) * side * channels);
  }
};

// Two rows by COLS places by VECS registers of channels, less the origin.
template <int CHANNELS, int COLS, int VECS>
INLINE void convolve(const float* corner, int stride, const float* weights, int width, const float* origin,
                     vec sum[2][COLS][VECS]) {
  UNROLL for (int v = 0; v < VECS; v++) {
    const vec start = -load(origin + v * LANES);
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < COLS; j++) sum[i][j][v] = start;
  }
  for (int ky = 0; ky < 3; ky++) {
    const float *upper = corner + (size_t)ky * stride, *lower = upper + stride;
    for (int k = 0; k < 3 * CHANNELS; k++, weights += width) {
      vec w[VECS];
      UNROLL for (int v = 0; v < VECS; v++) w[v] = load(weights + v * LANES);
      UNROLL for (int j = 0; j < COLS; j++) {
        const vec a = all(upper[CHANNELS * j + k]), b = all(lower[CHANNELS * j + k]);
        UNROLL for (int v = 0; v < VECS; v++) {
          sum[0][j][v] += a * w[v];
          sum[1][j][v] += b * w[v];
        }
      }
    }
  }
}

struct FirstBlock {
  const int side, width;
  const float *weights, *origin;  // [9·channels][width], [width]
  const float* gamma;             // without its sign
};

// GIVEN: the places are those of the index, which is read and not written, and nobody asks for the moments.
template <int CHANNELS, int COLS, int VECS, bool GIVEN>
static void first_forward_channels(const FirstBlock& block, const Padded& picture, int c, float* pooled, uint8_t* index,
                                   const Moments* moments) {
  const int side = block.side, width = block.width, half = side / 2;
  mask moves[VECS];
  vec all_sum[VECS] = {}, all_squares[VECS] = {};
  UNROLL for (int v = 0; v < VECS; v++) moves[v] = load(block.gamma + c + v * LANES) != vec{};
  for (int i = 0; i < side; i += 2) {
    vec sum[VECS] = {}, squares[VECS] = {};
    for (int j0 = 0; j0 < side; j0 += COLS) {
      vec y[2][COLS][VECS];
      const float* corner = picture.data + (size_t)i * picture.stride + j0 * CHANNELS;
      convolve<CHANNELS, COLS, VECS>(corner, picture.stride, block.weights + c, width, block.origin + c, y);
      if (GIVEN) {
      } else if (i + 1 < side && j0 + COLS <= side) {
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int j = 0; j < COLS; j++) UNROLL for (int v = 0; v < VECS; v++) {
          sum[v] += y[r][j][v];
          squares[v] += y[r][j][v] * y[r][j][v];
        }
      } else {  // the picture ends inside
        vec edge[2][COLS][VECS];
        std::memcpy(edge, y, sizeof edge);
        for (int r = 0; r < 2 && i + r < side; r++)
          for (int j = 0; j < COLS && j0 + j < side; j++)
            for (int v = 0; v < VECS; v++) {
              sum[v] += edge[r][j][v];
              squares[v] += edge[r][j][v] * edge[r][j][v];
            }
      }
      UNROLL for (int j = 0; j < COLS; j += 2) UNROLL for (int v = 0; v < VECS; v++) {
        if (i / 2 >= half || (j0 + j) / 2 >= half) continue;
        const size_t at = ((size_t)(i / 2) * half + (j0 + j) / 2) * width + c + v * LANES;
        vec value;
        mask place;
        if (GIVEN) {
          place = load_bytes(index + at);
          value = place == 0 ? y[0][j][v] : place == 1 ? y[0][j + 1][v] : place == 2 ? y[1][j][v] : y[1][j + 1][v];
        } else {
          largest(y[0][j][v], y[0][j + 1][v], y[1][j][v], y[1][j + 1][v], moves[v], value, place);
          if (index) store_bytes(index + at, place);
        }
        store(pooled + at, value);
      }
    }
    UNROLL for (int v = 0; v < VECS; v++) {
      all_sum[v] += sum[v];
      all_squares[v] += squares[v];
    }
  }
  for (int v = 0; moments && v < VECS; v++) {
    add_lanes(moments->sum + c + v * LANES, all_sum[v]);
    add_lanes(moments->squares + c + v * LANES, all_squares[v]);
  }
}

// One picture → pooled [half][half][width] less the origin, index of the same shape, moments.
template <int CHANNELS, int COLS, bool GIVEN = false>
static void first_forward(const FirstBlock& block, const Padded& picture, float* pooled, uint8_t* index,
                          const Moments* moments) {
  for (int c = 0; moments && c < block.width; c++) moments->origin[c] = moments->sum[c] = moments->squares[c] = 0;
  int c = 0;
  for (; c + 2 * LANES <= block.width; c += 2 * LANES)
    first_forward_channels<CHANNELS, COLS, 2, GIVEN>(block, picture, c, pooled, index, moments);
  for (; c < block.width; c += LANES)
    first_forward_channels<CHANNELS, COLS, 1, GIVEN>(block, picture, c, pooled, index, moments);
}

// The convolution at the centre of a picture: the origin of a task's map.
static void find_origin(const Padded& picture, const float* weights, int width, float* origin) {
  const int middle = picture.side / 2, row = 3 * picture.channels;
  for (int c = 0; c < width; c++) origin[c] = 0;
  for (int ky = 0; ky < 3; ky++)
    for (int k = 0; k < row; k++) {
      const float value = picture.data[(size_t)(middle + ky) * picture.stride + middle * picture.channels + k];
      for (int c = 0; c < width; c++) origin[c] += value * weights[(size_t)(ky * row + k) * width + c];
    }
}

constexpr int WINDOWS = 16;  // whose patches are copied at once: they stay in the nearest cache

template <int CHANNELS>
constexpr int patch_size() {  // a patch's 9·channels numbers take whole registers
  return (9 * CHANNELS + LANES - 1) / LANES * LANES;
}

// The patches of the four places of some windows of row i: patches [count][4][patch_size].
template <int CHANNELS>
static void copy_patches(const Padded& picture, int i, int first, int count, float* patches) {
  constexpr int ROW = 3 * CHANNELS;
  for (int j = 0; j < count; j++)
    for (int place = 0; place < 4; place++) {
      const int row = 2 * i + place / 2, column = 2 * (first + j) + place % 2;
      const float* from = picture.data + (size_t)row * picture.stride + column * CHANNELS;
      float* to = patches + (size_t)(4 * j + place) * patch_size<CHANNELS>();
      // Each store runs into what the next one writes; what is behind the last patch's end is never used.
      UNROLL for (int ky = 0; ky < 3; ky++)
        UNROLL for (int k = 0; k < ROW; k += LANES)
          store(to + ky * ROW + k, load(from + (size_t)ky * picture.stride + k));
    }
}

// Σ over pooled places of gradient × the patch that pooling took, added to sums [width][patch_size].
template <int CHANNELS>
static void add_taken_patches(const Padded& picture, int width, const float* gradient, const uint8_t* index,
                              float* patches, float* sums) {
  constexpr int PATCH = patch_size<CHANNELS>(), VECS = PATCH / LANES;
  constexpr int MANY = VECS <= 2 ? ROWS : 2;  // channels whose sums are in registers at once
  const int half = picture.side / 2;
  for (int i = 0; i < half; i++)
    for (int first = 0; first < half; first += WINDOWS) {
      const int count = half - first < WINDOWS ? half - first : WINDOWS;
      copy_patches<CHANNELS>(picture, i, first, count, patches);
      const float* g = gradient + ((size_t)i * half + first) * width;
      const uint8_t* taken = index + ((size_t)i * half + first) * width;
      for (int c = 0; c < width; c += MANY) {
        vec sum[MANY][VECS];
        UNROLL for (int t = 0; t < MANY; t++)
          UNROLL for (int v = 0; v < VECS; v++) sum[t][v] = load(sums + (size_t)(c + t) * PATCH + v * LANES);
        for (int j = 0; j < count; j++) {
          const size_t at = (size_t)j * width + c;
          UNROLL for (int t = 0; t < MANY; t++) {
            const float* patch = patches + (size_t)(4 * j + taken[at + t]) * PATCH;
            const vec value = all(g[at + t]);
            UNROLL for (int v = 0; v < VECS; v++) sum[t][v] += value * load(patch + v * LANES);
          }
        }
        UNROLL for (int t = 0; t < MANY; t++)
          UNROLL for (int v = 0; v < VECS; v++) store(sums + (size_t)(c + t) * PATCH + v * LANES, sum[t][v]);
      }
    }
}
