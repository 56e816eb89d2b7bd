// The forward pass, as each thread runs it on its share of every task's pictures.
#pragma once
#include "stem.h"

template <int CHANNELS, int COLS>
struct Forward : Member {
  Padded picture;
  Block<float> origin, own;  // own: [3][width], of the picture at work
  Tiles tiles, results;

  Forward(const Stem& stem, const Layers& layers, Team& team, double* shared, int rank)
      : Member(stem, layers, team, shared, rank), picture(stem.side, CHANNELS), origin(width), own(3 * width),
        tiles(TOGETHER, width), results(TOGETHER, width) {}

  void run() {
    if (!team.ready()) return;
    for (int task = 0; task < stem.tasks; task++) {
      first(task);
      finish(task, 0);
      for (int block = 1; block < stem.blocks; block++) {
        later(task, block);
        finish(task, block);
      }
      write(task);
    }
  }

  void first(int task) {
    picture.set(stem.picture(task, 0));
    find_origin(picture, layers.first, width, origin);
    const FirstBlock block{stem.side, width, layers.first, origin, layers.gamma};
    const size_t size = stem.pooled_size(0);
    for (int n = from; n < to; n++) {
      picture.set(stem.picture(task, n));
      const size_t at = stem.kept(task, n) * size;
      const Moments moments(half(), n, width);
      first_forward<CHANNELS, COLS>(block, picture, stem.pooled[0] + at, stem.keeps ? stem.index[0] + at : nullptr,
                                    &moments);
    }
  }

  void later(int task, int block) {
    const Grid grid(stem.side_of(block));
    const TileFinisher finisher{grid, results, layers.gamma_of(block), own, own + width, own + 2 * width};
    Block<float> padded(grid.padded_size(width), true);
    auto done = [&](int n, int tile, int slot) {
      const size_t at = stem.kept(task, n);
      const size_t pooled = at * stem.pooled_size(block);
      finisher({stem.keeps ? stem.map[block] + at * stem.map_size(block) : nullptr, stem.pooled[block] + pooled,
                stem.keeps ? stem.index[block] + pooled : nullptr},
               tile, slot);
      if (tile == grid.tiles - 1) {
        double* moments = Moments(half(), n, width).origin;
        for (int i = 0; i < 3 * width; i++) moments[i] = own[i];
      }
    };
    Convolution<decltype(done)> convolution(grid, layers.factors_of(block), tiles, results, done);
    for (int n = from; n < to; n++) {
      set_input_map(stem.pooled[block - 1] + stem.kept(task, n) * stem.pooled_size(block - 1), norms[block - 1], grid,
                    padded);
      convolution.add(n, padded);
    }
    convolution.flush();
  }

  void finish(int task, int block) {
    norms[block].measure(exchange(), stem.pictures);
    norms[block].prepare(layers.gamma_of(block), stem.beta[block]);
    if (rank == 0 && stem.keeps) {
      double* kept = stem.statistics_of(task, block);
      for (int c = 0; c < width; c++) {
        kept[c] = norms[block].mean[c];
        kept[width + c] = norms[block].inverse[c];
        kept[2 * width + c] = block ? 0 : origin[c];
      }
    }
  }

  void write(int task) {
    const int last = stem.blocks - 1;
    const size_t size = stem.pooled_size(last);
    for (int n = from; n < to; n++) {
      const float* pooled = stem.pooled[last] + stem.kept(task, n) * size;
      float* out = stem.out + ((size_t)task * stem.pictures + n) * size;
      for (size_t i = 0; i < size; i += width)
        for (int c = 0; c < width; c += LANES)
          store(out + i + c, load(norms[last].scale + c) * load(pooled + i + c) + load(norms[last].shift + c));
    }
  }
};
