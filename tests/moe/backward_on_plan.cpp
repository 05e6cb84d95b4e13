#include "tests/moe/backward_on_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "src/moe/token_exchange.h"

namespace moesaic {
namespace {

constexpr std::int64_t kExperts = 9;
constexpr std::int64_t kTopk = 3;
constexpr std::size_t kHidden = 10;
constexpr std::size_t kInner = 6;
constexpr std::int64_t kTokens = 52;  // of one micro-batch, on all ranks together

using Row = std::array<float, kHidden>;

/// An expert: down(tanh(up(x))).
struct Expert {
  std::array<std::array<float, kHidden>, kInner> up{};
  std::array<std::array<float, kInner>, kHidden> down{};
};

using UpGradient = std::array<std::array<float, kHidden>, kInner>;

std::array<float, kInner> activate(const Expert& expert, std::span<const float> x) {
  std::array<float, kInner> h{};
  for (std::size_t j = 0; j < kInner; ++j) {
    for (std::size_t i = 0; i < kHidden; ++i) h[j] += expert.up[j][i] * x[i];
    h[j] = std::tanh(h[j]);
  }
  return h;
}

void forward(const Expert& expert, std::span<const float> x, std::span<float> y) {
  const auto h = activate(expert, x);
  for (std::size_t i = 0; i < kHidden; ++i) {
    y[i] = 0;
    for (std::size_t j = 0; j < kInner; ++j) y[i] += expert.down[i][j] * h[j];
  }
}

/// What an expert gives back for one row: the unweighted gradient of x, and that of the weight.
using BackRow = std::array<float, kHidden + 1>;

struct BackwardInput {
  std::span<const float> x;
  std::span<const float> dy;
  float weight = 0;
};

void backward(const Expert& expert, const BackwardInput& in, std::span<float> back,
              UpGradient& up_gradient) {
  const auto h = activate(expert, in.x);
  std::ranges::fill(back, 0.0F);
  for (std::size_t j = 0; j < kInner; ++j) {
    float g = 0;  // down^T dy
    for (std::size_t i = 0; i < kHidden; ++i) g += expert.down[i][j] * in.dy[i];
    back[kHidden] += g * h[j];
    const float before = g * (1 - h[j] * h[j]);
    for (std::size_t i = 0; i < kHidden; ++i) {
      back[i] += before * expert.up[j][i];
      up_gradient[j][i] += in.weight * before * in.x[i];
    }
  }
}

/// A micro-batch of all ranks.
struct MicroBatch {
  explicit MicroBatch(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto* rows : {&x, &dy}) {
      rows->resize(kTokens);
      for (Row& row : *rows) std::ranges::generate(row, [&] { return normal(random); });
    }
    std::vector<int> ids(kExperts);
    for (std::size_t e = 0; e < ids.size(); ++e) ids[e] = static_cast<int>(e);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      std::ranges::shuffle(ids, random);
      std::sort(ids.begin(), ids.begin() + kTopk);
      for (std::size_t k = 0; k < kTopk; ++k) {
        experts.push_back(ExpertId{ids[k]});
        weights.push_back(normal(random));
      }
    }
  }

  std::vector<Row> x;
  std::vector<Row> dy;
  std::vector<ExpertId> experts;  // [tokens * topk]
  std::vector<float> weights;
};

/// What a pass over tokens [first, first + count) gives.
struct Results {
  std::vector<Row> y;
  std::vector<Row> dx;
  std::vector<float> dweights;
};

/// The values of a row that has travelled.
std::span<const float> floats(const std::byte* row) {
  return {reinterpret_cast<const float*>(row), kHidden};
}

void write_rows(std::span<const Row> from, WireRows& rows) {
  rows.resize(std::ssize(from));
  for (std::size_t t = 0; t < from.size(); ++t) {
    std::memcpy(rows.activations(static_cast<std::int64_t>(t)), from[t].data(), sizeof(Row));
  }
}

std::vector<Expert> make_experts() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.5F);
  std::vector<Expert> experts(kExperts);
  for (Expert& expert : experts) {
    for (auto& row : expert.up) std::ranges::generate(row, [&] { return normal(random); });
    for (auto& row : expert.down) std::ranges::generate(row, [&] { return normal(random); });
  }
  return experts;
}

/// A micro-batch on one rank, from its forward pass until its backward pass.
class Stash {
 public:
  Stash(Communicator& world, const MicroBatch& batch, std::int64_t first, std::int64_t count)
      : world_(world) {
    const auto token = [&](auto& of) { return std::span(of).subspan(index(first), index(count)); };
    const auto choice = [&](auto& of) {
      return std::span(of).subspan(index(first * kTopk), index(count * kTopk));
    };
    x_.assign(token(batch.x).begin(), token(batch.x).end());
    dy_.assign(token(batch.dy).begin(), token(batch.dy).end());
    routing_.num_tokens = count;
    routing_.topk = kTopk;
    routing_.experts.assign(choice(batch.experts).begin(), choice(batch.experts).end());
    routing_.weights.assign(choice(batch.weights).begin(), choice(batch.weights).end());
  }

  void run_forward(TokenExchange& exchange, std::span<const Expert> local, Results& results) {
    WireRows rows(world_.make_row_memory(), sizeof(Row), kTopk);
    write_rows(x_, rows);
    rows.set_experts(routing_);
    exchange.plan_sends(routing_, plan_);
    PendingDispatch dispatch = exchange.dispatch(rows, plan_, {});
    dispatch.wait();
    exchange.finish_plan(routing_, dispatch, plan_);
    const Buffer<float> outputs(plan_.execute.num_outputs() * std::ssize(Row()));
    const auto matrix = outputs.matrix(plan_.execute.num_outputs(), std::ssize(Row()));
    for_each_output([&](std::size_t slot, std::int64_t output, std::int64_t source) {
      kept_x_.emplace_back();
      std::ranges::copy(floats(dispatch.source(source)), kept_x_.back().begin());
      forward(local[slot], kept_x_.back(), matrix.row(output));
    });
    PendingResults home = exchange.combine(matrix, plan_, {});
    home.wait();
    results.y = weighted_sums(home);
  }

  void run_backward(TokenExchange& exchange, std::span<const Expert> local,
                    std::span<UpGradient> gradients, Results& results) {
    WireRows rows(world_.make_row_memory(), sizeof(Row), kTopk);
    write_rows(dy_, rows);
    rows.set_weights(routing_);
    PendingDispatch dispatch = exchange.dispatch(rows, plan_, {});
    dispatch.wait();
    const Buffer<float> outputs(plan_.execute.num_outputs() * std::ssize(BackRow()));
    const auto matrix = outputs.matrix(plan_.execute.num_outputs(), std::ssize(BackRow()));
    for_each_output([&](std::size_t slot, std::int64_t output, std::int64_t source) {
      const std::byte* row = dispatch.source(source);
      const std::int32_t word = plan_.execute.output_words[index(output)];
      backward(local[slot],
               {kept_x_[index(output)], floats(row),
                WireRows::weights_of(dispatch.words(source))[index(word)]},
               matrix.row(output), gradients[slot]);
    });
    PendingResults home = exchange.combine(matrix, plan_, {});
    home.wait();
    results.dx = weighted_sums(home);
    for (std::int64_t choice = 0; choice < routing_.num_tokens * kTopk; ++choice) {
      results.dweights.push_back(home.result(plan_, choice)[kHidden]);
    }
  }

 private:
  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

  template <typename Body>
  void for_each_output(Body&& body) const {
    const ExecutePlan& plan = plan_.execute;
    for (std::size_t slot = 0; slot + 1 < plan.slot_begin.size(); ++slot) {
      for (std::int64_t o = plan.slot_begin[slot]; o < plan.slot_begin[slot + 1]; ++o) {
        body(slot, o, plan.output_sources[index(o)]);
      }
    }
  }

  [[nodiscard]] std::vector<Row> weighted_sums(const PendingResults& home) const {
    std::vector<Row> sums(index(routing_.num_tokens));
    for (std::int64_t choice = 0; choice < routing_.num_tokens * kTopk; ++choice) {
      Row& sum = sums[index(choice / kTopk)];
      for (std::size_t i = 0; i < kHidden; ++i) {
        sum[i] += routing_.weights[index(choice)] * home.result(plan_, choice)[i];
      }
    }
    return sums;
  }

  std::vector<Row> x_, dy_;
  Communicator& world_;
  Routing routing_;
  ExchangePlan plan_;
  std::vector<Row> kept_x_;  // [outputs]
};

/// The same without ranks: token by token, choice by choice.
Results reference(const MicroBatch& batch, std::span<const Expert> experts,
                  std::span<UpGradient> gradients) {
  Results results;
  results.y.resize(kTokens);
  results.dx.resize(kTokens);
  for (std::size_t choice = 0; choice < batch.experts.size(); ++choice) {
    const std::size_t t = choice / kTopk;
    const auto e = static_cast<std::size_t>(batch.experts[choice]);
    Row y{};
    forward(experts[e], batch.x[t], y);
    BackRow back{};
    backward(experts[e], {batch.x[t], batch.dy[t], batch.weights[choice]}, back, gradients[e]);
    for (std::size_t i = 0; i < kHidden; ++i) {
      results.y[t][i] += batch.weights[choice] * y[i];
      results.dx[t][i] += batch.weights[choice] * back[i];
    }
    results.dweights.push_back(back[kHidden]);
  }
  return results;
}

/// `part` are the results of the tokens from `first` on.
void expect_same(const Results& part, const Results& all, std::int64_t first) {
  const auto equal = [&](const auto& a, const auto& b, std::int64_t begin) {
    return std::ranges::equal(a, std::span(b).subspan(static_cast<std::size_t>(begin), a.size()));
  };
  EXPECT_TRUE(equal(part.y, all.y, first));
  EXPECT_TRUE(equal(part.dx, all.dx, first));
  EXPECT_TRUE(equal(part.dweights, all.dweights, first * kTopk));
}

/// The first token of a rank; of three and more, rank 1 has none.
std::int64_t first_token(int rank, int size) {
  if (size < 3) return kTokens * rank / size;
  return rank == 0 ? 0 : kTokens * std::max(rank - 1, 1) / (size - 1);
}

}  // namespace

void check_backward_on_plan(Communicator& world) {
  const std::vector<Expert> experts = make_experts();
  const MicroBatch early(1);
  const MicroBatch late(2);
  std::vector<UpGradient> all_gradients(kExperts);
  const Results all_late = reference(late, experts, all_gradients);
  const Results all_early = reference(early, experts, all_gradients);

  const ExpertPlacement placement(kExperts, world.size());
  const auto begin = static_cast<std::size_t>(placement.experts_start_idx(world.rank()));
  const auto slots = static_cast<std::size_t>(placement.num_local_experts(world.rank()));
  const auto local = std::span(experts).subspan(begin, slots);
  const std::int64_t first = first_token(world.rank(), world.size());
  const std::int64_t last = first_token(world.rank() + 1, world.size());
  std::vector<UpGradient> gradients(slots);
  TokenExchange exchange(world, placement);
  Stash early_stash(world, early, first, last - first);
  Stash late_stash(world, late, first, last - first);
  Results early_results, late_results;
  early_stash.run_forward(exchange, local, early_results);
  late_stash.run_forward(exchange, local, late_results);
  late_stash.run_backward(exchange, local, gradients, late_results);
  early_stash.run_backward(exchange, local, gradients, early_results);
  expect_same(early_results, all_early, first);
  expect_same(late_results, all_late, first);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    EXPECT_EQ(gradients[slot], all_gradients[begin + slot]) << "slot " << slot;
  }
}

}  // namespace moesaic
