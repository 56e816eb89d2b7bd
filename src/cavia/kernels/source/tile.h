// Products of matrices with a tile of points: TILE columns that stay in the cache from the first layer to the last.
#pragma once
#include "vector.h"

constexpr int TILE = 64;                         // points
constexpr int BLOCK_ROWS = LANES == 16 ? 6 : 3;  // rows and registers of a block of results: they fill the processor's
constexpr int BLOCK_VECS = 4;                    // registers

// A matrix whose element (r, k) stands at data[r * row + k * column]; null: there is none.
struct Matrix {
  const float* data;
  int row, column;

  Matrix from(int r) const { return {data + (size_t)r * row, row, column}; }
};

// Rows of points, `stride` apart.
struct Rows {
  const float* data;
  size_t stride;

  Rows from(int column) const { return {data + column, stride}; }
};

template <int ROWS>
INLINE void add_product(vec (&sum)[ROWS][BLOCK_VECS], Matrix a, int inner, Rows x) {
  for (int k = 0; k < inner; k++) {
    vec value[BLOCK_VECS];
    UNROLL for (int v = 0; v < BLOCK_VECS; v++) value[v] = load(x.data + k * x.stride + v * LANES);
    UNROLL for (int r = 0; r < ROWS; r++) {
      const vec factor = all(a.data[(size_t)r * a.row + (size_t)k * a.column]);
      UNROLL for (int v = 0; v < BLOCK_VECS; v++) sum[r][v] += factor * value[v];
    }
  }
}

// What a layer's sums are made of: bias + a·x + b·y, and 0 where `gate` is not above 0.
struct Sums {
  const float* bias;
  Matrix a;
  int of_a;
  Rows x;
  Matrix b;
  int of_b;
  Rows y;
  Rows gate;
};

template <int ROWS>
static void sums_block(const Sums& s, int row, int column, float* out) {
  vec sum[ROWS][BLOCK_VECS];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < BLOCK_VECS; v++) sum[r][v] = s.bias ? all(s.bias[row + r]) : vec{};
  if (s.a.data) add_product<ROWS>(sum, s.a.from(row), s.of_a, s.x.from(column));
  if (s.b.data) add_product<ROWS>(sum, s.b.from(row), s.of_b, s.y.from(column));
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < BLOCK_VECS; v++) {
      const int at = column + v * LANES;
      vec value = sum[r][v];
      if (s.gate.data) value = load(s.gate.data + (row + r) * s.gate.stride + at) > vec{} ? value : vec{};
      store(out + (size_t)(row + r) * TILE + at, value);
    }
}

// rows × TILE results.
static void write_sums(const Sums& s, int rows, float* out) {
  for (int column = 0; column < TILE; column += BLOCK_VECS * LANES) {
    int row = 0;
    for (; row + BLOCK_ROWS <= rows; row += BLOCK_ROWS) sums_block<BLOCK_ROWS>(s, row, column, out);
    for (; row + 2 <= rows; row += 2) sums_block<2>(s, row, column, out);
    if (row < rows) sums_block<1>(s, row, column, out);
  }
}

// total [ROWS][VECS registers] += left [ROWS][TILE] · right [TILE][...]
template <int ROWS, int VECS>
static void outer_block(const float* left, const float* right, size_t stride, float* total) {
  vec sum[ROWS][VECS];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECS; v++) sum[r][v] = load(total + r * stride + v * LANES);
  for (int b = 0; b < TILE; b++) {
    vec value[VECS];
    UNROLL for (int v = 0; v < VECS; v++) value[v] = load(right + b * stride + v * LANES);
    UNROLL for (int r = 0; r < ROWS; r++) {
      const vec factor = all(left[(size_t)r * TILE + b]);
      UNROLL for (int v = 0; v < VECS; v++) sum[r][v] += factor * value[v];
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECS; v++) store(total + r * stride + v * LANES, sum[r][v]);
}

template <int VECS>
static void outer_columns(const float* left, int rows, const float* right, size_t stride, float* total) {
  int row = 0;
  for (; row + BLOCK_ROWS <= rows; row += BLOCK_ROWS)
    outer_block<BLOCK_ROWS, VECS>(left + (size_t)row * TILE, right, stride, total + row * stride);
  for (; row < rows; row++) outer_block<1, VECS>(left + (size_t)row * TILE, right, stride, total + row * stride);
}

// total [rows][stride] += left [rows][TILE] · right [TILE][stride], the stride a multiple of LANES.
static void add_outer(const float* left, int rows, const float* right, size_t stride, float* total) {
  const int vecs = (int)(stride / LANES);
  int v = 0;
  for (; v + BLOCK_VECS <= vecs; v += BLOCK_VECS)
    outer_columns<BLOCK_VECS>(left, rows, right + v * LANES, stride, total + v * LANES);
  for (; v + 2 <= vecs; v += 2) outer_columns<2>(left, rows, right + v * LANES, stride, total + v * LANES);
  if (v < vecs) outer_columns<1>(left, rows, right + v * LANES, stride, total + v * LANES);
}

// sums[row] += Σ of the tile's columns
static void add_columns(const float* tile, int rows, float* sums) {
  for (int row = 0; row < rows; row++) {
    vec sum = {};
    for (int b = 0; b < TILE; b += LANES) sum += load(tile + (size_t)row * TILE + b);
    sums[row] += (float)total(sum);
  }
}
