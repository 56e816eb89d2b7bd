// The backward pass, as each thread runs it on its share of every task's pictures.
#pragma once
#include "stem.h"

template <int CHANNELS>
struct Backward : Member {
  static constexpr int TAPS = 9 * CHANNELS, PATCH = patch_size<CHANNELS>();
  Padded picture;
  Block<float> patches, taken;  // taken: [width][PATCH], of the task at work
  Tiles tiles, results, inputs, gradients;
  Block<float> own;                 // [2][width], of the picture at work
  Block<float> above[MOST_BLOCKS];  // the gradient by a block's pooled and normed map, of the thread's pictures
  Block<double> first;              // [TAPS][width]: the gradient of the first block's weights
  Block<float> factors;             // and of the later blocks' factors

  Backward(const Stem& stem, const Layers& layers, Team& team, double* shared, int rank)
      : Member(stem, layers, team, shared, rank), picture(stem.side, CHANNELS),
        patches(4 * WINDOWS * PATCH + 2 * LANES, true), taken((size_t)width * PATCH),
        tiles(TOGETHER, width), results(TOGETHER, width),
        inputs(SUMMED, width), gradients(SUMMED, width), own(2 * width),
        above{room(0), room(1), room(2), room(3)}, first((size_t)TAPS * width, true),
        factors((stem.blocks - 1) * layers.factors_size, true) {}

  // The last block's is given; the first block's is used up picture by picture.
  Block<float> room(int block) const {
    const size_t pictures = block == 0 ? 1 : to - from;
    return Block<float>(block < stem.blocks - 1 ? pictures * stem.pooled_size(block) : 0);
  }

  void run() {
    if (!team.ready()) return;
    for (int task = 0; task < stem.tasks; task++) {
      std::memset(taken, 0, sizeof(float) * width * PATCH);
      for (int block = 0; block < stem.blocks; block++) {
        std::memcpy(norms[block].mean, stem.statistics_of(task, block), sizeof(double) * 2 * width);
        norms[block].prepare(layers.gamma_of(block), stem.beta[block]);
      }
      last(task);
      for (int block = stem.blocks - 1; block > 0; block--) later(task, block);
      finish_first(task);
    }
    team.wait();
  }

  NormGradient norm_gradient(int block) {
    double* sums = exchange();
    const bool adds = rank == 0;  // one of them
    return NormGradient(norms[block], sums, stem.pictures, adds ? stem.gamma_gradients + block * width : nullptr,
                        adds ? stem.beta_gradients + block * width : nullptr);
  }
  double* sums_of(int n) const { return half() + (size_t)n * 2 * width; }
  const float* given(int task, int n) const {
    return stem.gradient + ((size_t)task * stem.pictures + n) * stem.pooled_size(stem.blocks - 1);
  }

  // Σ d and Σ d·(pooled − centre) of the gradient d that is given.
  void last(int task) {
    const int block = stem.blocks - 1;
    const size_t size = stem.pooled_size(block);
    for (int n = from; n < to; n++) {
      const float *d = given(task, n), *pooled = stem.pooled[block] + stem.kept(task, n) * size;
      double* sums = sums_of(n);
      for (int c = 0; c < width; c += LANES) {
        vec sum = {}, products = {};
        for (size_t i = c; i < size; i += width) {
          sum += load(d + i);
          products += load(d + i) * (load(pooled + i) - load(norms[block].centre + c));
        }
        for (int lane = 0; lane < LANES; lane++) sums[c + lane] = sums[width + c + lane] = 0;
        add_lanes(sums + c, sum);
        add_lanes(sums + width + c, products);
      }
      if (block == 0) take(task, n, d);
    }
  }

  // The first block's part that needs the gradient by its pooled map.
  void take(int task, int n, const float* gradient) {
    picture.set(stem.picture(task, n));
    add_taken_patches<CHANNELS>(picture, width, gradient, stem.index[0] + stem.kept(task, n) * stem.pooled_size(0),
                                patches, taken);
  }

  void later(int task, int block) {
    const NormGradient norm = norm_gradient(block);
    const Grid grid(stem.side_of(block));
    const GradientFinisher finisher{grid, results, norms[block - 1], own, own + width};
    const size_t size = stem.pooled_size(block), size_before = stem.pooled_size(block - 1);
    auto before = [&](int n) { return stem.pooled[block - 1] + stem.kept(task, n) * size_before; };
    auto below = [&](int n) { return above[block - 1] + (block > 1 ? (n - from) * size_before : 0); };
    auto done = [&](int n, int tile, int slot) {
      finisher(before(n), below(n), tile, slot);
      if (tile < grid.tiles - 1) return;
      for (int i = 0; i < 2 * width; i++) sums_of(n)[i] = own[i];
      if (block == 1) take(task, n, below(n));
    };
    Block<float> gradient(grid.padded_size(width), true), input(grid.padded_size(width), true);
    Convolution<decltype(done)> convolution(grid, layers.factors_of(block), tiles, results, done);
    float* summed = factors + (block - 1) * layers.factors_size;
    int used = 0;
    for (int n = from; n < to; n++) {
      const size_t at = stem.kept(task, n);
      const float* from_above = block == stem.blocks - 1 ? given(task, n) : above[block] + (n - from) * size;
      set_gradient_map(stem.map[block] + at * stem.map_size(block), from_above, stem.index[block] + at * size,
                       norms[block], norm, grid, gradient);
      convolution.add(n, gradient);
      set_input_map(before(n), norms[block - 1], grid, input);
      for (int tile = 0; tile < grid.tiles; tile++) {
        inputs.set_input(used, input, grid, tile);
        gradients.set_gradient(used, gradient, grid, tile);
        if (++used == inputs.room) {
          add_products(inputs, gradients, used, summed);
          used = 0;
        }
      }
    }
    convolution.flush();
    add_products(inputs, gradients, used, summed);
  }

  // What pooling let through, and the norm's own gradient over all places: own·(y − mean) + constant, y a product of
  // weights and patch.
  void finish_first(int task) {
    const NormGradient norm = norm_gradient(0);
    PatchProducts<CHANNELS> patch(stem.side);
    for (int n = from; n < to; n++) patch.add(stem.picture(task, n));
    const double* origin = stem.statistics_of(task, 0) + 2 * width;
    for (int k = 0; k < TAPS; k++)
      for (int c = 0; c < width; c++) {
        double covariance = -patch.sums[k] * (norms[0].mean[c] + origin[c]);
        for (int other = 0; other < TAPS; other++)
          covariance += patch.products[k][other] * layers.first[other * width + c];
        first[k * width + c] += norms[0].scale[c] * taken[(size_t)c * PATCH + k] + norm.own_exact[c] * covariance +
                                norm.constant_exact[c] * patch.sums[k];
      }
  }

  // After all have run: the sum over threads.
  static void write(const Stem& stem, const Layers& layers, Backward* const* members) {
    const int width = stem.width;
    for (int k = 0; k < TAPS * width; k++) {
      double sum = 0;
      for (int rank = 0; rank < stem.threads; rank++) sum += members[rank]->first[k];
      stem.weight_gradients[0][k] = layers.sign[k % width] * sum;
    }
    float* factors = members[0]->factors;
    for (int rank = 1; rank < stem.threads; rank++)
      for (size_t i = 0; i < (stem.blocks - 1) * layers.factors_size; i++) factors[i] += members[rank]->factors[i];
    for (int block = 1; block < stem.blocks; block++)
      from_factors(factors + (block - 1) * layers.factors_size, layers.sign_of(block), width,
                   stem.weight_gradients[block]);
    for (int i = 0; i < stem.blocks * width; i++) stem.gamma_gradients[i] *= layers.sign[i];
  }
};
