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

template <int CHANNELS>
static bool forward_channels(const Stem& stem) {
  constexpr int OTHER = COLUMNS > 4 ? 4 : COLUMNS;
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

extern "C" int cavia_stem_lanes() { return LANES; }
