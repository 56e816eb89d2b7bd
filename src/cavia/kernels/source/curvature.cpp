// A product with the Hessian of a function of a ReLU network's output, by the network's weights, for the points of one
// task, in single precision. No state outlives a call.
#include <memory>
#include "team.h"
#include "tile.h"

constexpr int MOST_LAYERS = 8;

// As `kernels/curvature.py` lays it out. A column is a point; `points` is a multiple of TILE.
struct Curvature {
  int32_t layers, points, threads;
  int32_t categorical;                    // the gradient by the output changes by of_output·(change − Σ mixed·change),
                                          // else by of_output·change + mixed·log_std
  int32_t sizes[MOST_LAYERS + 1];         // inputs of each layer, and the outputs of the last
  const float* weight[MOST_LAYERS];       // [o][i]
  const float* inputs[MOST_LAYERS];       // [i][points]
  const float* turned[MOST_LAYERS];       // [points][i, padded]; null: the gradient by the weights is not wanted
  const float* by_sums[MOST_LAYERS];      // [o][points], the gradient by the layer's sums; null: left out
  const float* by_turned[MOST_LAYERS];    // [points][o, padded]; null: left out
  const float* change[MOST_LAYERS];       // [o][i] of the weights; null: they stay
  const float* bias_change[MOST_LAYERS];  // [o]; null: it stays
  const float* of_output;                 // [A][points]
  const float* mixed;                     // [A][points] or null
  const float* log_std;                   // [A], its change, or null
  float* gradient[MOST_LAYERS];           // [o][i]
  float* bias_gradient[MOST_LAYERS];      // [o]
  float* mixed_sums;                      // [A]
};

INLINE int padded(int size) { return (size + LANES - 1) / LANES * LANES; }

// One thread's share of the tiles.
class Share {
 public:
  explicit Share(const Curvature& c) : c_(c) {
    for (int l = 0; l < c.layers; l++) {
      const int in = c.sizes[l], out = c.sizes[l + 1];
      inputs_[l] = std::make_unique<Block<float>>((size_t)in * TILE);
      by_sums_[l] = std::make_unique<Block<float>>((size_t)out * TILE);
      biases_[l] = std::make_unique<Block<float>>(out, true);
      if (c.turned[l]) outer_[l] = std::make_unique<Block<float>>((size_t)out * padded(in), true);
      if (c.by_turned[l]) turned_[l] = std::make_unique<Block<float>>((size_t)in * padded(out), true);
    }
    mixed_ = std::make_unique<Block<float>>(c.sizes[c.layers], true);
  }

  void run(int rank) {
    for (int at = rank * TILE; at < c_.points; at += c_.threads * TILE) tile(at);
  }

  // The sum of this and others, written where it belongs.
  static void write(const Curvature& c, const std::vector<std::unique_ptr<Share>>& shares) {
    for (int l = 0; l < c.layers; l++) {
      const int in = c.sizes[l], out = c.sizes[l + 1];
      for (int o = 0; c.turned[l] && o < out; o++)
        for (int i = 0; i < in; i++) {
          float sum = 0;
          for (auto& share : shares) {
            sum += (*share->outer_[l])[(size_t)o * padded(in) + i];
            if (c.by_turned[l]) sum += (*share->turned_[l])[(size_t)i * padded(out) + o];
          }
          c.gradient[l][(size_t)o * in + i] = sum;
        }
      for (int o = 0; o < out; o++) {
        c.bias_gradient[l][o] = 0;
        for (auto& share : shares) c.bias_gradient[l][o] += (*share->biases_[l])[o];
      }
    }
    for (int a = 0; a < c.sizes[c.layers]; a++) {
      c.mixed_sums[a] = 0;
      for (auto& share : shares) c.mixed_sums[a] += (*share->mixed_)[a];
    }
  }

 private:
  Rows columns(const float* rows, int at) const { return {rows ? rows + at : nullptr, (size_t)c_.points}; }

  void tile(int at) {
    const int last = c_.layers - 1;
    forward(at);
    at_output(*by_sums_[last], at);
    for (int l = last; l >= 0; l--) {
      const float* by_sums = *by_sums_[l];
      const int in = c_.sizes[l], out = c_.sizes[l + 1];
      if (l) {
        Sums s = {nullptr, {c_.weight[l], 1, in}, out, {by_sums, TILE}, {nullptr, 1, in}, out, {}, {}};
        s.gate = columns(c_.inputs[l], at);
        if (c_.by_sums[l] && c_.change[l]) {
          s.b.data = c_.change[l];
          s.y = columns(c_.by_sums[l], at);
        }
        write_sums(s, in, *by_sums_[l - 1]);
      }
      add_columns(by_sums, out, *biases_[l]);
      if (c_.turned[l]) add_outer(by_sums, out, c_.turned[l] + (size_t)at * padded(in), padded(in), *outer_[l]);
      if (c_.by_turned[l])
        add_outer(*inputs_[l], in, c_.by_turned[l] + (size_t)at * padded(out), padded(out), *turned_[l]);
    }
  }

  // The change of every layer's inputs, and of the output, which is put where the gradient by it will be.
  void forward(int at) {
    for (int l = 0; l < c_.layers; l++) {
      const int in = c_.sizes[l], out = c_.sizes[l + 1];
      const bool is_last = l == c_.layers - 1;
      Sums s = {c_.bias_change[l], {c_.change[l], in, 1}, in, columns(c_.inputs[l], at), {nullptr, in, 1}, in, {}, {}};
      if (l) {
        s.b.data = c_.weight[l];
        s.y = {*inputs_[l], TILE};
      }
      if (!is_last) s.gate = columns(c_.inputs[l + 1], at);
      write_sums(s, out, is_last ? *by_sums_[l] : *inputs_[l + 1]);
    }
  }

  void at_output(float* tile, int at) {
    const int actions = c_.sizes[c_.layers];
    for (int b = 0; b < TILE; b += LANES) {
      vec mean = {};
      for (int a = 0; c_.categorical && a < actions; a++)
        mean += load(c_.mixed + (size_t)a * c_.points + at + b) * load(tile + (size_t)a * TILE + b);
      for (int a = 0; a < actions; a++) {
        float* place = tile + (size_t)a * TILE + b;
        const size_t from = (size_t)a * c_.points + at + b;
        const vec change = load(place);
        vec by_output = load(c_.of_output + from) * (change - mean);
        if (c_.mixed && !c_.categorical) {
          const vec mixed = load(c_.mixed + from);
          (*mixed_)[a] += (float)total(mixed * change);
          if (c_.log_std) by_output += mixed * all(c_.log_std[a]);
        }
        store(place, by_output);
      }
    }
  }

  const Curvature& c_;
  std::unique_ptr<Block<float>> inputs_[MOST_LAYERS], by_sums_[MOST_LAYERS], biases_[MOST_LAYERS];
  std::unique_ptr<Block<float>> outer_[MOST_LAYERS], turned_[MOST_LAYERS], mixed_;
};

// 0 if all went well, 1 if there was not enough memory.
extern "C" int cavia_curvature(const Curvature* c) {
  try {
    Team team(c->threads);
    std::vector<std::unique_ptr<Share>> shares(c->threads);
    const bool ran = team.run([&](int rank) {
      shares[rank] = std::make_unique<Share>(*c);
      shares[rank]->run(rank);
    });
    if (ran) Share::write(*c, shares);
    return ran ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" int cavia_curvature_tile() { return TILE; }

extern "C" int cavia_curvature_lanes() { return LANES; }
