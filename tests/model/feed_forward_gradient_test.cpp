// Feed-forward parts, forward and backward, against double precision and finite differences, on
// ranks that are threads.

#include "src/model/feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "comm/thread_communicator.h"
#include "tests/lora/naive_mlp.h"
#include "tests/model/naive_feed_forward.h"

namespace moesaic {
namespace {

using Layer = naive::FeedForwardLayer;

constexpr std::int64_t kHidden = Layer::kHidden;
constexpr std::int64_t kTokens = Layer::kTokens;
constexpr std::int64_t kSharedWidth = Layer::kSharedWidth;
/// The tokens of each sample.
constexpr std::array<SampleRange, 5> kSamples = {{{0, 7}, {7, 1}, {8, 12}, {20, 6}, {26, 4}}};

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// What all ranks together found.
struct Results {
  std::vector<float> y = std::vector<float>(index(kTokens * kHidden));
  std::vector<float> dx = y;
  std::vector<std::int64_t> sums;
  RouterStatistics statistics;
  std::mutex mutex;
};

struct Way {
  int ranks = 1;
  int threads = 1;
  Format format = Format::f32;
  std::int64_t samples_at_once = 5;
};

/// One rank of the layer.
class Rank {
 public:
  Rank(Layer& layer, const Way& way, Communicator& world)
      : layer_(layer), way_(way), world_(world), packed_(way.format), pool_(way.threads) {
    adapters_.reserve(30);
    if (layer.is_plain()) {
      add(layer.shared, true);
      return;
    }
    const ExpertPlacement placement(layer.config.experts, world.size());
    const auto first = placement.experts_start_idx(world.rank());
    const auto end = first + placement.num_local_experts(world.rank());
    add(layer.shared, layer.config.shared_width > 0);
    weights_.push_back({plain_.pack(layer.shared_gate)});
    weights_.push_back({plain_.pack(layer.router)});
    weights_.push_back({.vector = layer.choice_bias});
    weights_.push_back({.vector = layer.router_bias});
    if (!layer.config.gates_shared) weights_[3] = {};
    for (std::int64_t e = 0; e < layer.config.experts; ++e) {
      const std::size_t before = weights_.size();
      add(layer.experts[index(e)], true);
      if (e < first || e >= end) weights_.resize(before);
    }
    if (layer.config.shared_width == 0) std::fill_n(weights_.begin(), 4, Weight{});
  }

  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return packed_.places(); }

  void run(Results& results) {
    const Isa isa = supported_isas().back();
    const Precision precision = way_.format == Format::f32 ? Precision::f32 : Precision::bf16;
    LayerContext context(
        {.compute = {.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool_},
         .precision = precision,
         .hidden = kHidden,
         .num_experts = layer_.config.experts,
         .experts_per_token = layer_.config.router.topk},
        world_);
    const auto part = layer_.kind()->make_layer(weights_, context);
    AdapterGradients gradients(packed_.places(), find_vector_kernels(isa));
    RouterStatistics statistics;
    context.moe.front().statistics = &statistics;
    std::vector<Pass> passes;
    const std::vector<SampleRange> own = own_samples();
    const auto rounds = (std::ssize(kSamples) + way_.samples_at_once - 1) / way_.samples_at_once;
    for (std::int64_t round = 0; round < rounds; ++round) {  // the same number on every rank
      const auto from = std::min(index(round * way_.samples_at_once), own.size());
      const auto count = std::min(index(way_.samples_at_once), own.size() - from);
      passes.emplace_back(layer_, std::span(own).subspan(from, count), part->make_stash());
      Pass& pass = passes.back();
      part->forward({.x = pass.matrix(pass.x), .y = pass.matrix(pass.y), .keep = pass.stash.get()});
    }
    context.moe.front().statistics = nullptr;
    for (Pass& pass : passes) {
      part->backward(*pass.stash, {.x = pass.matrix(pass.x),
                                   .dy = pass.matrix(pass.dy),
                                   .dx = pass.matrix(pass.dx),
                                   .samples = pass.samples,
                                   .adapters = gradients});
    }
    const std::scoped_lock lock(results.mutex);
    for (const Pass& pass : passes) pass.copy_to(results);
    results.sums.resize(gradients.sums().size());
    for (std::size_t i = 0; i < results.sums.size(); ++i) {
      results.sums[i] += gradients.sums()[i];
    }
    results.statistics.add(statistics);
  }

 private:
  /// A micro-batch.
  struct Pass {
    Pass(const Layer& layer, std::span<const SampleRange> of, std::unique_ptr<Stash> kept)
        : from(of.begin(), of.end()), stash(std::move(kept)) {
      for (const auto& [first, count] : from) {
        samples.push_back({rows, count});
        rows += count;
        const auto append = [&, first = first, count = count](const naive::Matrix& all,
                                                              std::vector<float>& to) {
          to.insert(to.end(), all.row(first), all.row(first) + count * kHidden);
        };
        append(layer.x, x);
        append(layer.dy, dy);
      }
      y.resize(x.size());
      dx.resize(x.size(), 7.0F);
    }
    [[nodiscard]] MatrixView<float> matrix(std::vector<float>& values) const {
      return {values.data(), rows, kHidden};
    }
    void copy_to(Results& results) const {
      for (std::size_t s = 0; s < from.size(); ++s) {
        const auto copy = [&](const std::vector<float>& all, std::vector<float>& to) {
          std::copy_n(all.begin() + samples[s].first_row * kHidden, samples[s].num_rows * kHidden,
                      to.begin() + from[s].first_row * kHidden);
        };
        copy(y, results.y);
        copy(dx, results.dx);
      }
    }

    std::vector<SampleRange> from;     // among all tokens
    std::vector<SampleRange> samples;  // among the rows of this
    std::int64_t rows = 0;
    std::vector<float> x, y, dy, dx;
    std::unique_ptr<Stash> stash;
  };

  void add(const naive::Mlp& mlp, bool is_there) {
    const AdaptedMlp packed = packed_.pack(mlp, adapters_);
    const auto weight = [&](const PackedMatrix& matrix, const Adapter* adapter) -> Weight {
      if (!is_there) return {};
      if (adapter == nullptr) return {matrix};
      return {.matrix = matrix, .adapter = adapter};
    };
    weights_.push_back(weight(packed.weights.gate, packed.gate));
    weights_.push_back(weight(packed.weights.up, packed.up));
    weights_.push_back(weight(packed.weights.down, packed.down));
    for (const naive::Projection* const projection : {&mlp.gate, &mlp.up, &mlp.down}) {
      if (!projection->bias.empty()) weights_.push_back({.vector = projection->bias});
    }
  }

  /// Samples go round the ranks, but rank 1 of several has none.
  [[nodiscard]] std::vector<SampleRange> own_samples() const {
    std::vector<SampleRange> own;
    for (std::int64_t s = 0; s < std::ssize(kSamples); ++s) {
      int rank = static_cast<int>(s) % way_.ranks;
      if (rank == 1) rank = 0;
      if (rank == world_.rank()) own.push_back(kSamples[index(s)]);
    }
    return own;
  }

  Layer& layer_;
  Way way_;
  Communicator& world_;
  naive::Packed packed_;
  naive::Packed plain_{Format::f32};
  ThreadPool pool_;
  std::vector<Adapter> adapters_;
  WeightSet weights_;
};

void run(Layer& layer, const Way& way, Results& results) {
  run_thread_ranks(way.ranks, [&](Communicator& world) { Rank(layer, way, world).run(results); });
}

std::vector<AdapterPlace> places(Layer& layer) {
  std::vector<AdapterPlace> result;
  run_thread_ranks(1, [&](Communicator& world) { result = Rank(layer, {}, world).places(); });
  return result;
}

/// The sums of one factor as numbers.
std::vector<double> values_of(const Results& results, const FactorPlace& place) {
  std::vector<double> values;
  for (std::int64_t i = place.first; i < place.first + place.size(); ++i) {
    values.push_back(AdapterGradients::value(results.sums[index(i)]));
  }
  return values;
}

void expect_near_differences(Layer& layer, const Results& results, double tolerance) {
  std::vector<double> dx;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t i = 0; i < kHidden; ++i) {
      dx.push_back(naive::derivative(layer.x.row(t)[i], [&] { return layer.product(t); }));
    }
  }
  EXPECT_LE(naive::distance(results.dx, dx), tolerance);
  const std::vector<AdapterPlace> all = places(layer);
  std::size_t next = 0;
  const auto check = [&](naive::Projection& projection, bool has_gradient) {
    if (!projection.adapter) return;
    const AdapterPlace& place = all[next++];
    const auto a = values_of(results, place.a);
    const auto b = values_of(results, place.b);
    if (!has_gradient) {
      EXPECT_TRUE(std::ranges::all_of(a, [](double value) { return value == 0; }));
      return;
    }
    const auto loss = [&] { return layer.loss(); };
    EXPECT_LE(naive::distance(a, naive::gradient(projection.adapter->a, loss)), tolerance);
    EXPECT_LE(naive::distance(b, naive::gradient(projection.adapter->b, loss)), tolerance);
  };
  const auto check_mlp = [&](naive::Mlp& mlp, bool has_gradient) {
    check(mlp.gate, has_gradient);
    check(mlp.up, has_gradient);
    check(mlp.down, has_gradient);
  };
  check_mlp(layer.shared, layer.is_plain() || layer.config.shared_width > 0);
  for (std::size_t e = 0; e < layer.experts.size(); ++e) check_mlp(layer.experts[e], e != 4);
  EXPECT_EQ(next, all.size());
}

std::vector<MoeConfig> configs() {
  return {
      {.router = {.topk = 3}},
      {.shared_width = kSharedWidth,
       .gates_shared = true,
       .router = {.topk = 3, .normalize = true}},
      {.router = {.topk = 2, .scores = ExpertScores::logits}},
      {.router = {.topk = 3, .scores = ExpertScores::logits},
       .router_bias = true,
       .expert_bias = true},
      {.shared_width = kSharedWidth,
       .router = {.topk = 3, .scores = ExpertScores::sigmoid, .normalize = true, .scale = 1.5F},
       .choice_bias = true},
      {.router = {.topk = 2, .scores = ExpertScores::sigmoid, .scale = 0.5F}, .choice_bias = true},
      {.router = {.topk = 3, .scale = 2}},
      {.router = {.topk = 0}}};
}

TEST(FeedForwardGradient, equals_finite_differences) {
  for (const MoeConfig& config : configs()) {
    Layer layer(config);
    Results results;
    run(layer, {.threads = 2}, results);
    expect_near_differences(layer, results, 3e-6);
  }
}

TEST(FeedForwardGradient, bf16_is_near_finite_differences) {
  Layer layer(configs()[1]);
  Results results;
  run(layer, {.threads = 2, .format = Format::bf16}, results);
  expect_near_differences(layer, results, 2e-2);
}

TEST(FeedForwardGradient, bits_do_not_depend_on_ranks_threads_or_micro_batches) {
  for (const MoeConfig& config : configs()) {
    Layer layer(config);
    for (const Format format : {Format::f32, Format::bf16}) {
      Results expected;
      run(layer, {.format = format}, expected);
      for (const int ranks : {1, 2, 3, 4}) {
        if (ranks > 1 && layer.is_plain()) continue;  // nothing to share
        for (const std::int64_t at_once : {1, 2, 5}) {
          Results results;
          run(layer, {ranks, ranks == 1 ? 3 : 1, format, at_once}, results);
          EXPECT_EQ(results.y, expected.y) << ranks << " ranks";
          EXPECT_EQ(results.dx, expected.dx) << ranks << " ranks";
          EXPECT_EQ(results.sums, expected.sums) << ranks << " ranks";
          EXPECT_EQ(results.statistics.chosen, expected.statistics.chosen);
          EXPECT_EQ(results.statistics.probability, expected.statistics.probability);
        }
      }
    }
  }
}

TEST(FeedForwardGradient, counts_choices_and_probabilities) {
  for (const MoeConfig& config : configs()) {
    Layer layer(config);
    if (layer.is_plain()) continue;
    Results results;
    run(layer, {}, results);
    std::vector<double> probabilities(layer.experts.size());
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto scores = layer.scores_of({layer.x.row(t), layer.x.row(t) + kHidden});
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      for (std::size_t e = 0; e < scores.size(); ++e) probabilities[e] += scores[e] / sum;
    }
    const auto& chosen = results.statistics.chosen;
    EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}),
              kTokens * config.router.topk);
    double loss = 0;
    for (std::size_t e = 0; e < probabilities.size(); ++e) {
      const double sum =
          static_cast<double>(results.statistics.probability[e]) * RouterStatistics::kUnit;
      EXPECT_NEAR(sum, probabilities[e], 1e-4);
      loss += 6.0 * static_cast<double>(chosen[e]) * probabilities[e] / (kTokens * kTokens);
    }
    EXPECT_NEAR(balance_loss(results.statistics, kTokens), loss, 1e-5);
  }
}

}  // namespace
}  // namespace moesaic
