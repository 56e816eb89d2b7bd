// Blocks of convolution, batch norm by a task's own statistics, 2×2 max-pooling and (but for the last) relu, forward
// and backward, in single precision, channels last. No state outlives a call.
#include <memory>
#include "backward.h"
#include "forward.h"

template <int CHANNELS, int COLS>
static bool forward(const Stem& stem) {
  const Layers layers(stem, false);
  const Block<double> shared((size_t)2 * 3 * stem.pictures * stem.width);
  Team team(stem.threads);
  return team.run([&](int rank) { Forward<CHANNELS, COLS>(stem, layers, team, shared, rank).run(); });
}

constexpr int OTHER = COLUMNS > 4 ? 4 : COLUMNS;  // columns at a time, where they divide the side and COLUMNS do not

template <int CHANNELS>
static bool forward_channels(const Stem& stem) {
  if (stem.side % COLUMNS && stem.side % OTHER == 0) return forward<CHANNELS, OTHER>(stem);
  return forward<CHANNELS, COLUMNS>(stem);
}

template <int CHANNELS>
static bool backward_channels(const Stem& stem) {
  const Layers layers(stem, true);
  const Block<double> shared((size_t)2 * 3 * stem.pictures * stem.width);
  Team team(stem.threads);
  std::vector<std::unique_ptr<Backward<CHANNELS>>> members(stem.threads);
  const bool ran = team.run([&](int rank) {
    members[rank] = std::make_unique<Backward<CHANNELS>>(stem, layers, team, shared, rank);
    members[rank]->run();
  });
  std::vector<Backward<CHANNELS>*> all;
  for (auto& member : members) all.push_back(member.get());
  if (ran) Backward<CHANNELS>::write(stem, layers, all.data());
  return ran;
}

// The first block's convolution alone, as a linear function of its weights once pooling has chosen its places.
template <int CHANNELS>
static bool first(const First& first) {
  const Block<float> zeros(first.width, true), patches(4 * WINDOWS * patch_size<CHANNELS>() + 2 * LANES, true);
  const Block<float> taken((size_t)first.width * patch_size<CHANNELS>(), true);
  const FirstBlock block{first.side, first.width, first.weights, zeros, first.gamma};
  Padded picture(first.side, CHANNELS);
  PatchProducts<CHANNELS> products(first.side);
  const size_t half = first.side / 2, size = half * half * first.width;
  for (int n = 0; n < first.pictures; n++) {
    const float* x = first.x + (size_t)n * first.side * first.side * CHANNELS;
    picture.set(x);
    if (first.job == First::CHOOSE) {
      first_forward<CHANNELS, OTHER>(block, picture, first.pooled + n * size, first.index + n * size, nullptr);
      products.add(x);
    } else if (first.job == First::FOLLOW) {
      first_forward<CHANNELS, OTHER, true>(block, picture, first.pooled + n * size, first.index + n * size, nullptr);
    } else {
      add_taken_patches<CHANNELS>(picture, first.width, first.pooled + n * size, first.index + n * size, patches,
                                  taken);
    }
  }
  if (first.job == First::CHOOSE) {
    std::memcpy(first.sums, products.sums, sizeof products.sums);
    std::memcpy(first.products, products.products, sizeof products.products);
  } else if (first.job == First::GRADIENT) {
    for (int k = 0; k < 9 * CHANNELS; k++)
      for (int c = 0; c < first.width; c++) first.weights[k * first.width + c] = taken[c * patch_size<CHANNELS>() + k];
  }
  return true;
}

// 0 if all went well, 1 if there was not enough memory.
template <class Pass>
static int guarded(const Pass& pass) {
  try {
    return pass() ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" int cavia_stem_forward(const Stem* stem) {
  return guarded([&] { return stem->channels == 1 ? forward_channels<1>(*stem) : forward_channels<3>(*stem); });
}

extern "C" int cavia_stem_backward(const Stem* stem) {
  return guarded([&] { return stem->channels == 1 ? backward_channels<1>(*stem) : backward_channels<3>(*stem); });
}

extern "C" int cavia_first(const First* job) {
  return guarded([&] { return job->channels == 1 ? first<1>(*job) : first<3>(*job); });
}
