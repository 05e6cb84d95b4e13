#include "src/train/gradient_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/thread_communicator.h"

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

/// A communicator that counts the values of sums.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& base) : base_(base) {}

  std::int64_t values = 0;

  void sum(std::span<std::int64_t> of) override {
    values += std::ssize(of);
    base_.sum(of);
  }
  void sum(std::span<float> of) override { base_.sum(of); }
  void max(std::span<std::int64_t> of) override { base_.max(of); }
  [[nodiscard]] int rank() const noexcept override { return base_.rank(); }
  [[nodiscard]] int size() const noexcept override { return base_.size(); }
  [[nodiscard]] std::string transport() const override { return base_.transport(); }
  [[nodiscard]] bool has_messages() const override { return base_.has_messages(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return base_.split(color, key);
  }
  std::unique_ptr<Communicator> split_node() override { return base_.split_node(); }
  void barrier() override { base_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override { base_.broadcast(data, root); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    base_.all_gather(send, recv);
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    return base_.exchange_rows(send, expected);
  }
  [[nodiscard]] RowCounters row_counters() const override { return base_.row_counters(); }
  void progress() override { base_.progress(); }
  [[nodiscard]] RowLabel& place() noexcept override { return base_.place(); }
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    return base_.allocate_shared(bytes);
  }

 private:
  Communicator& base_;
};

/// A gradient of all elements of a factor.
void add(AdapterGradients& gradients, std::int32_t adapter, Factor factor, float value) {
  const AdapterPlace& place = gradients.places()[static_cast<std::size_t>(adapter)];
  const FactorPlace& form = factor == Factor::a ? place.a : place.b;
  const std::vector<float> values(static_cast<std::size_t>(form.size()), value);
  gradients.add(adapter, factor, {values.data(), form.rows, form.cols});
}

/// Rank r adds r + 1 to both factors of the adapters of attention and of expert `experts[r]`.
std::vector<double> summed(std::span<const std::int64_t> experts, std::int64_t expected_values) {
  std::vector<double> result;
  run_thread_ranks(static_cast<int>(experts.size()), [&](Communicator& world) {
    const AdapterSet set(specs(), Format::f32);
    const std::vector<AdapterSpec> all = specs();
    AdapterGradients gradients(set.places());
    const auto value = static_cast<float>(world.rank() + 1);
    const std::int64_t expert = experts[static_cast<std::size_t>(world.rank())];
    for (const std::int64_t adapter : {std::int64_t{0}, 1 + 2 * expert, 2 + 2 * expert}) {
      for (const Factor factor : {Factor::a, Factor::b}) {
        add(gradients, static_cast<std::int32_t>(adapter), factor, value);
      }
    }
    CountingCommunicator replicas(world);
    const GradientReduction reduction(set, all, {.world = world, .replicas = replicas});
    EXPECT_FALSE(reduction.sum(gradients).has_value());
    EXPECT_EQ(replicas.values, expected_values);
    if (world.rank() != 0) return;
    for (const std::int64_t sum : gradients.sums()) result.push_back(AdapterGradients::value(sum));
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
    EXPECT_EQ(summed(experts, touched * kExpertValues), expected);
  };
  expect(std::array<std::int64_t, 3>{1, 4, 1}, 2);
  expect(std::array<std::int64_t, 3>{2, 3, 4}, 3);
  expect(std::array<std::int64_t, 3>{5, 5, 5}, 1);
}

}  // namespace
}  // namespace moesaic
