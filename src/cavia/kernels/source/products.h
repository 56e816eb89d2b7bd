// The matrix products of Winograd's algorithm: one for each of the 36 places of a tile.
#pragma once
#include "winograd.h"

// SLOTS tiles times the factors of VECS registers of output channels. STRIDE: the width, where it is known to the
// compiler, which then needs no registers for addresses; 0 where it is not.
template <int STRIDE, int VECS>
INLINE void multiply_block(const float* tiles, const float* factors, float* results, int runtime_width) {
  const int width = STRIDE ? STRIDE : runtime_width;
  vec sum[SLOTS][VECS] = {};
  for (int k = 0; k < width; k++) {
    vec factor[VECS];
    UNROLL for (int v = 0; v < VECS; v++) factor[v] = load(factors + (size_t)k * VECS * LANES + v * LANES);
    UNROLL for (int t = 0; t < SLOTS; t++) {
      const vec value = all(tiles[(size_t)t * width + k]);
      UNROLL for (int v = 0; v < VECS; v++) sum[t][v] += value * factor[v];
    }
  }
  UNROLL for (int t = 0; t < SLOTS; t++)
    UNROLL for (int v = 0; v < VECS; v++) store(results + (size_t)t * width + v * LANES, sum[t][v]);
}

template <int STRIDE>
static void multiply_tiles(const Tiles& tiles, int used, const float* factors, const Tiles& results) {
  const int width = tiles.width;
  for (int place = 0; place < PLACES; place++)
    for (int c = 0; c < width; c += WIDE) {
      const float* block = factors + (size_t)place * width * width + (size_t)c * width;
      for (int slot = 0; slot < used; slot += SLOTS) {
        if (width - c >= WIDE)
          multiply_block<STRIDE, 2>(tiles.at(place, slot), block, results.at(place, slot) + c, width);
        else
          multiply_block<STRIDE, 1>(tiles.at(place, slot), block, results.at(place, slot) + c, width);
      }
    }
}

// results = tiles × factors, for at least the first `used` slots; room is a multiple of SLOTS.
static void multiply(const Tiles& tiles, int used, const float* factors, const Tiles& results) {
  switch (tiles.width) {
    case 32: return multiply_tiles<32>(tiles, used, factors, results);
    case 64: return multiply_tiles<64>(tiles, used, factors, results);
    case 128: return multiply_tiles<128>(tiles, used, factors, results);
    default: return multiply_tiles<0>(tiles, used, factors, results);
  }
}

// factors += tilesᵀ × gradients over `used` slots, for ROWS input channels and VECS registers of output channels.
template <int VECS>
INLINE void add_products_block(const float* tiles, const float* gradients, float* factors, int used, int width) {
  vec sum[ROWS][VECS];
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int v = 0; v < VECS; v++) sum[i][v] = load(factors + (i * VECS + v) * LANES);
  for (int t = 0; t < used; t++) {
    vec gradient[VECS];
    UNROLL for (int v = 0; v < VECS; v++) gradient[v] = load(gradients + (size_t)t * width + v * LANES);
    UNROLL for (int i = 0; i < ROWS; i++) {
      const vec value = all(tiles[(size_t)t * width + i]);
      UNROLL for (int v = 0; v < VECS; v++) sum[i][v] += value * gradient[v];
    }
  }
  UNROLL for (int i = 0; i < ROWS; i++)
    UNROLL for (int v = 0; v < VECS; v++) store(factors + (i * VECS + v) * LANES, sum[i][v]);
}

static void add_products(const Tiles& tiles, const Tiles& gradients, int used, float* factors) {
  const int width = tiles.width;
  for (int place = 0; place < PLACES; place++)
    for (int c = 0; c < width; c += WIDE)
      for (int k = 0; k < width; k += ROWS) {
        float* block = factors + factor_at(width, place, k, c);
        if (width - c >= WIDE)
          add_products_block<2>(tiles.at(place, 0) + k, gradients.at(place, 0) + c, block, used, width);
        else
          add_products_block<1>(tiles.at(place, 0) + k, gradients.at(place, 0) + c, block, used, width);
      }
}
