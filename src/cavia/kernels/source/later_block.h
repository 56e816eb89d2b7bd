// The blocks after the first: Winograd's convolution, its statistics and pooling on each tile as it comes out.
#pragma once
#include <algorithm>
#include "norm.h"
#include "products.h"

using std::min;

// The map that a block reads, of one picture: relu(scale·pooled + shift) of the block before, with a border of zeros.
static void set_input_map(const float* pooled, const Norm& norm, const Grid& grid, float* padded) {
  const int width = norm.width;
  for (int i = 0; i < grid.side; i++)
    for (int j = 0; j < grid.side; j++) {
      const float* from = pooled + ((size_t)i * grid.side + j) * width;
      float* to = padded + ((size_t)(i + 1) * grid.padded + j + 1) * width;
      for (int c = 0; c < width; c += LANES)
        store(to + c, relu(load(norm.scale + c) * load(from + c) + load(norm.shift + c)));
    }
}

// Tiles of one picture after another, multiplied as soon as there is no more room, whichever pictures they are of.
// finish(picture, tile, results, slot) is called for each, in order.
template <class Finish>
class Convolution {
 public:
  Convolution(const Grid& grid, const float* factors, Tiles& tiles, Tiles& results, Finish finish)
      : grid_(grid), factors_(factors), tiles_(tiles), results_(results), finish_(finish), source_(2 * tiles.room) {}

  void add(int picture, const float* padded) {
    for (int tile = 0; tile < grid_.tiles; tile++) {
      tiles_.set_input(used_, padded, grid_, tile);
      source_[2 * used_] = picture;
      source_[2 * used_ + 1] = tile;
      if (++used_ == tiles_.room) flush();
    }
  }

  void flush() {
    multiply(tiles_, used_, factors_, results_);
    for (int slot = 0; slot < used_; slot++) finish_(source_[2 * slot], source_[2 * slot + 1], slot);
    used_ = 0;
  }

 private:
  const Grid& grid_;
  const float* factors_;
  Tiles &tiles_, &results_;
  Finish finish_;
  Block<int> source_;
  int used_ = 0;
};

// What a block's forward pass writes for one picture; map and index may be absent.
struct BlockOutput {
  float *map, *pooled;  // [side][side][width], [side / 2][side / 2][width]
  uint8_t* index;       // as pooled
};

// A tile's results, of LANES channels, into the map, the pooled map and the moments.
struct TileFinisher {
  const Grid& grid;
  const Tiles& results;
  const float* gamma;  // without its sign
  float *origin, *sum, *squares;  // [width], of the picture at work

  void operator()(const BlockOutput& out, int tile, int slot) const {
    const int side = grid.side, width = results.width, row = grid.row(tile), column = grid.column(tile);
    const bool whole = row + STEP <= side && column + STEP <= side;
    for (int c = 0; c < width; c += LANES) {
      vec y[STEP][STEP];
      results.get_output(slot, c, y);
      if (tile == 0) {
        store(origin + c, y[1][1]);
        store(sum + c, vec{});
        store(squares + c, vec{});
      }
      if (whole)
        write(out, row, column, c, STEP, STEP, y);
      else
        write_edge(out, row, column, c, min(STEP, side - row), min(STEP, side - column), y);
    }
  }

  INLINE_MEMBER void write(const BlockOutput& out, int row, int column, int c, int rows, int columns,
                           const vec y[STEP][STEP]) const {
    const int side = grid.side, half = side / 2, width = results.width;
    const vec start = load(origin + c);
    const mask moves = load(gamma + c) != vec{};
    vec tile_sum = {}, tile_squares = {};
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++) {
      const vec off = y[i][j] - start;
      tile_sum += off;
      tile_squares += off * off;
      if (out.map) store(out.map + ((size_t)(row + i) * side + column + j) * width + c, y[i][j]);
    }
    store(sum + c, load(sum + c) + tile_sum);
    store(squares + c, load(squares + c) + tile_squares);
    UNROLL for (int i = 0; i + 1 < rows; i += 2) UNROLL for (int j = 0; j + 1 < columns; j += 2) {
      vec value;
      mask place;
      largest(y[i][j], y[i][j + 1], y[i + 1][j], y[i + 1][j + 1], moves, value, place);
      const size_t at = ((size_t)((row + i) / 2) * half + (column + j) / 2) * width + c;
      store(out.pooled + at, value);
      if (out.index) store_bytes(out.index + at, place);
    }
  }

  // The map ends inside the tile: not inlined, so that a whole tile's results stay in registers.
  __attribute__((noinline)) void write_edge(const BlockOutput& out, int row, int column, int c, int rows, int columns,
                                            const vec y[STEP][STEP]) const {
    write(out, row, column, c, rows, columns, y);
  }
};

// The gradient by a block's map, of one picture, with a border of zeros: the norm's own part everywhere, and at the
// places that pooling took what came from above.
static void set_gradient_map(const float* map, const float* above, const uint8_t* index, const Norm& norm,
                             const NormGradient& own, const Grid& grid, float* padded) {
  const int side = grid.side, half = side / 2, width = norm.width;
  for (int i = 0; i < side; i += 2)
    for (int c = 0; c < width; c += LANES) {
      const vec slope = load(own.own + c), constant = load(own.constant + c), centre = load(norm.centre + c);
      const vec scale = load(norm.scale + c);
      auto alone = [&](int r, int j) __attribute__((always_inline)) {
        return slope * (load(map + ((size_t)(i + r) * side + j) * width + c) - centre) + constant;
      };
      auto put = [&](int r, int j, vec d) __attribute__((always_inline)) {
        store(padded + ((size_t)(i + r + 1) * grid.padded + j + 1) * width + c, d);
      };
      if (i + 1 == side) {  // a last row that no window has
        for (int j = 0; j < side; j++) put(0, j, alone(0, j));
        continue;
      }
      for (int j = 0; j < half; j++) {
        const size_t at = ((size_t)(i / 2) * half + j) * width + c;
        const vec taken = scale * load(above + at);
        const mask place = load_bytes(index + at);
        UNROLL for (int q = 0; q < 4; q++)
          put(q / 2, 2 * j + q % 2, alone(q / 2, 2 * j + q % 2) + (place == q ? taken : vec{}));
      }
      if (side % 2)
        for (int r = 0; r < 2; r++) put(r, side - 1, alone(r, side - 1));
    }
}

// A tile of the gradient by a block's input: through the relu of the block before, into [side][side][width], and into
// the sums that the norm before needs.
struct GradientFinisher {
  const Grid& grid;
  const Tiles& results;
  const Norm& before;
  float *sum, *products;  // [width]: Σ d, Σ d·(pooled − centre), of the picture at work

  void operator()(const float* pooled, float* gradient, int tile, int slot) const {
    const int side = grid.side, width = results.width, row = grid.row(tile), column = grid.column(tile);
    const size_t corner = ((size_t)row * side + column) * width;
    const bool whole = row + STEP <= side && column + STEP <= side;
    for (int c = 0; c < width; c += LANES) {
      vec d[STEP][STEP];
      results.get_output(slot, c, d);
      if (tile == 0) {
        store(sum + c, vec{});
        store(products + c, vec{});
      }
      if (whole)
        write(pooled + corner + c, gradient + corner + c, c, STEP, STEP, d);
      else
        write_edge(pooled + corner + c, gradient + corner + c, c, min(STEP, side - row), min(STEP, side - column), d);
    }
  }

  INLINE_MEMBER void write(const float* pooled, float* gradient, int c, int rows, int columns,
                           const vec d[STEP][STEP]) const {
    const vec scale = load(before.scale + c), shift = load(before.shift + c), centre = load(before.centre + c);
    vec tile_sum = {}, tile_products = {};
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++) {
      const size_t at = ((size_t)i * grid.side + j) * results.width;
      const vec value = load(pooled + at);
      const vec through = scale * value + shift <= vec{} ? vec{} : d[i][j];
      store(gradient + at, through);
      tile_sum += through;
      tile_products += through * (value - centre);
    }
    store(sum + c, load(sum + c) + tile_sum);
    store(products + c, load(products + c) + tile_products);
  }

  // The map ends inside the tile: not inlined, so that a whole tile's results stay in registers.
  __attribute__((noinline)) void write_edge(const float* pooled, float* gradient, int c, int rows, int columns,
                                            const vec d[STEP][STEP]) const {
    write(pooled, gradient, c, rows, columns, d);
  }
};
