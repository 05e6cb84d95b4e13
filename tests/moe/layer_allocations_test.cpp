// Whole passes through MoE layers take their memory in the first ones, and none after that.

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "comm/thread_communicator.h"
#include "tests/moe/small_layers.h"
#include "tests/support/allocations.h"

namespace moesaic::test {
namespace {

/// Passes of several sizes through two layers, and what this thread and its helpers allocate in
/// them, by turns of all sizes.
class CountedPasses {
 public:
  CountedPasses(std::span<const Model> layers, Communicator& world, const MoeOptions& options,
                int threads)
      : world_(world),
        rank_(layers, world, threads),
        work_(rank_.workspace(options)),
        defer_(options.defer),
        counter_(threads == 1 ? allocations_of_thread : allocations_of_all) {
    for (const std::int64_t count : {5, 20, 0, 1}) {
      inputs_.push_back(rank_.inputs({world.rank(), count}));
    }
    results_.resize(inputs_[1].size());
  }

  /// Neighbours have read the rows of one pass before the next: those that they still read are not
  /// written over.
  [[nodiscard]] std::int64_t turn() {
    std::int64_t count = 0;
    for (const std::vector<float>& x : inputs_) {
      for (const std::size_t layer : {0, 1}) {
        world_.barrier();
        const std::int64_t before = counter_();
        run(x, layer);
        count += counter_() - before;
      }
    }
    return count;
  }

 private:
  void run(const std::vector<float>& x, std::size_t layer) {
    const std::int64_t hidden = Shape{}.hidden;
    work_.defer = layer == 0 ? defer_ : 0;
    rank_.begin(x, work_, layer);
    rank_.layer(layer).end({results_.data(), std::ssize(x) / hidden, hidden}, work_);
  }

  Communicator& world_;
  Rank rank_;
  MoeWorkspace work_;
  std::int64_t defer_;
  std::int64_t (*counter_)() noexcept;
  std::vector<std::vector<float>> inputs_;
  std::vector<float> results_;
};

void check_passes(int ranks, int threads, const MoeOptions& options) {
  const std::array layers = {Model{Shape{}, 1}, Model{Shape{}, 2}};
  run_thread_ranks(ranks, [&](Communicator& world) {
    CountedPasses passes(layers, world, options, threads);
    const std::int64_t first = passes.turn();
    EXPECT_GT(first, 0) << "the counter counts";
    (void)passes.turn();
    std::vector<std::int64_t> counts;
    for (int turn = 0; turn < 30; ++turn) counts.push_back(passes.turn());
    if (ranks == 1 && threads == 1) {
      EXPECT_EQ(std::ranges::max(counts), 0);
    } else {  // what only some timing wants is taken when it wants it, once
      EXPECT_EQ(std::ranges::min(counts), 0) << ranks << " ranks, rank " << world.rank();
      EXPECT_LT(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), first);
    }
  });
}

TEST(MoeLayerAllocations, none_after_the_first_passes) {
  if (!counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  for (const MoeOptions& options : {MoeOptions{}, MoeOptions{.wire = WireForm::int8},
                                    MoeOptions{.combine = Combine::fast}, MoeOptions{.defer = 1}}) {
    for (const int ranks : {1, 2}) check_passes(ranks, 1, options);
    check_passes(1, 2, options);
  }
}

}  // namespace
}  // namespace moesaic::test
