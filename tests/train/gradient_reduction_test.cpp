#include "src/train/gradient_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "kernels/kernel_table.h"

namespace moesaic {
namespace {

constexpr std::int64_t kIn = 3;
constexpr std::int64_t kOut = 5;
constexpr std::int64_t kExperts = 6;
constexpr std::int64_t kValuesEach = kIn + kOut;  // of rank 1

/// Attention and six experts; ups share the A of gates.
std::vector<AdapterSpec> specs() {
  std::vector<AdapterSpec> specs;
  const auto add = [&](const AdapterSite& site, bool shares_a) {
    specs.push_back({.site = site, .rank = 1, .scale = 1, .shares_a = shares_a});
    specs.back().site.in = kIn;
    specs.back().site.out = kOut;
  };
  add({.module = "q_proj"}, false);
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    const std::string name = "experts." + std::to_string(expert);
    add({.kind = AdapterKind::experts, .module = name + ".gate_proj", .expert = expert}, false);
    add({.kind = AdapterKind::experts, .module = name + ".up_proj", .expert = expert}, true);
  }
  return specs;
}

/// What went to all ranks of a group.
struct Sent {
  std::int64_t bytes = 0;
  RowLabel label{};  // of the last rows
};

/// A communicator that tells which rows its groups, and it, send to all.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  WatchedCommunicator(Communicator& base, Sent& sent) : ForwardingCommunicator(base), sent_(sent) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> group = base().split(color, key);
    auto watched = std::make_unique<WatchedCommunicator>(*group, sent_);
    watched->owned_ = std::move(group);
    return watched;
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    const std::set<std::int32_t> rows(send.rows.begin(), send.rows.end());
    sent_.bytes += std::ssize(rows) * send.row_bytes;
    sent_.label = send.label;
    return base().exchange_rows(send, expected);
  }

 private:
  Sent& sent_;
  std::unique_ptr<Communicator> owned_;  // the base of a group
};

/// A gradient of all elements of a factor.
void add(AdapterGradients& gradients, std::int32_t adapter, Factor factor, float value) {
  const AdapterPlace& place = gradients.places()[static_cast<std::size_t>(adapter)];
  const FactorPlace& form = factor == Factor::a ? place.a : place.b;
  const std::vector<float> values(static_cast<std::size_t>(form.size()), value);
  gradients.add(adapter, factor, {values.data(), form.rows, form.cols});
}

struct Summed {
  std::vector<double> values;
  Sent to_replicas{};  // by rank 0
};

/// Rank r adds r + 1 to both factors of the adapters of attention and of expert `experts[r]`.
/// `early`: the sums begin before all is asked for.
Summed summed(std::span<const std::int64_t> experts, bool early) {
  Summed result;
  run_thread_ranks(static_cast<int>(experts.size()), [&](Communicator& world) {
    const AdapterSet set(specs(), Format::f32);
    const std::vector<AdapterSpec> all = specs();
    AdapterGradients gradients(set.places(), find_vector_kernels(Isa::scalar));
    const auto value = static_cast<float>(world.rank() + 1);
    const std::int64_t expert = experts[static_cast<std::size_t>(world.rank())];
    for (const std::int64_t adapter : {std::int64_t{0}, 1 + 2 * expert, 2 + 2 * expert}) {
      for (const Factor factor : {Factor::a, Factor::b}) {
        add(gradients, static_cast<std::int32_t>(adapter), factor, value);
      }
    }
    Sent to_replicas;
    WatchedCommunicator replicas(world, to_replicas);
    world.place() = RowLabel{.step = 7, .layer = 2, .phase = {}}.at("results");
    ThreadPool pool(1);
    GradientReduction reduction(set, all, {.world = world, .replicas = replicas}, pool);
    if (early) reduction.start(0, gradients);
    EXPECT_FALSE(reduction.sum(gradients).has_value());
    if (world.rank() != 0) return;
    result.to_replicas = to_replicas;
    for (const std::int64_t sum : gradients.sums()) {
      result.values.push_back(AdapterGradients::value(sum));
    }
  });
  return result;
}

/// What the ranks add to an expert: A twice, by gate and up.
std::vector<double> expert_values(double value) {
  std::vector<double> values(kIn, 2 * value);
  values.insert(values.end(), 2 * kOut, value);
  return values;
}

TEST(GradientReduction, experts_without_rows_do_not_travel) {
  constexpr std::int64_t kExpertValues = kIn + 2 * kOut;
  const auto expect = [&](std::span<const std::int64_t> experts, std::int64_t touched) {
    std::vector<double> expected(kValuesEach, 6.0);  // 1 + 2 + 3
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      double value = 0;
      for (std::size_t rank = 0; rank < experts.size(); ++rank) {
        if (experts[rank] == expert) value += static_cast<double>(rank + 1);
      }
      const std::vector<double> values = expert_values(value);
      expected.insert(expected.end(), values.begin(), values.end());
    }
    // Each of three ranks adds a third: of the values, and of what tells which experts these are.
    const std::int64_t rows = (touched * kExpertValues + 2) / 3 * 3 + 2 * kExperts;
    for (const bool early : {false, true}) {
      const Summed seen = summed(experts, early);
      EXPECT_EQ(seen.values, expected);
      EXPECT_EQ(seen.to_replicas.bytes, rows * 8);
      EXPECT_EQ(seen.to_replicas.label.text(), "pass 7, layer 0, sums") << "where the rank is";
    }
  };
  expect(std::array<std::int64_t, 3>{1, 4, 1}, 2);
  expect(std::array<std::int64_t, 3>{2, 3, 4}, 3);
  expect(std::array<std::int64_t, 3>{5, 5, 5}, 1);
}

/// What both of two ranks are told where rank r has NaN in the adapters `broken[r]`, and the model
/// has the order of `all`.
std::string told_as_broken(const std::array<std::vector<std::int32_t>, 2>& broken,
                           const std::vector<AdapterSpec>& all) {
  std::array<std::string, 2> told;
  run_thread_ranks(2, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const AdapterSet set(specs(), Format::f32);
    AdapterGradients gradients(set.places(), find_vector_kernels(Isa::scalar));
    for (const std::int32_t adapter : broken[rank]) {
      add(gradients, adapter, Factor::b, std::numeric_limits<float>::quiet_NaN());
    }
    ThreadPool pool(1);
    GradientReduction reduction(set, all, {.world = world, .replicas = world}, pool);
    told[rank] = reduction.sum(gradients).value_or("nothing");
  });
  EXPECT_EQ(told[0], told[1]);
  return told[0];
}

TEST(GradientReduction, names_the_first_broken_module_of_the_model_on_any_ranks) {
  std::vector<AdapterSpec> all = specs();
  EXPECT_EQ(told_as_broken({}, all), "nothing");
  EXPECT_EQ(told_as_broken({{{1}, {3, 5}}}, all), "experts.0.gate_proj");
  EXPECT_EQ(told_as_broken({{{3, 5}, {1}}}, all), "experts.0.gate_proj");
  std::rotate(all.begin(), all.begin() + 1, all.end());  // attention stands last
  EXPECT_EQ(told_as_broken({{{0, 3}, {}}}, all), "experts.1.gate_proj");
}

TEST(GradientReduction, sums_that_leave_no_room_for_those_of_other_ranks_are_broken) {
  run_thread_ranks(2, [&](Communicator& world) {
    const AdapterSet set(specs(), Format::f32);
    const std::vector<AdapterSpec> all = specs();
    AdapterGradients gradients(set.places(), find_vector_kernels(Isa::scalar));
    ThreadPool pool(1);
    const std::unique_ptr<Communicator> alone = world.split(world.rank(), 0);
    GradientReduction reduction(set, all, {.world = world, .replicas = *alone}, pool);
    const auto told = [&](float each) {  // a sample's gradient, on either rank
      gradients.clear(pool);
      add(gradients, 0, Factor::b, each);
      return reduction.sum(gradients).value_or("nothing");
    };
    EXPECT_EQ(told(0x1p17F), "nothing");
    EXPECT_EQ(told(0x1.8p17F), "q_proj");
  });
}

}  // namespace
}  // namespace moesaic
