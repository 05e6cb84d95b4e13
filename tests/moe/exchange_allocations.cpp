#include "tests/moe/exchange_allocations.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "src/moe/token_exchange.h"
#include "tests/support/allocations.h"

namespace moesaic {
namespace {

constexpr std::int64_t kCountedExperts = 16;
constexpr std::int64_t kCountedTopk = 4;
constexpr std::int64_t kCountedHidden = 64;

Routing random_routing(std::int64_t tokens, std::mt19937& random) {
  Routing routing{.num_tokens = tokens, .topk = kCountedTopk, .experts = {}, .weights = {}};
  for (std::int64_t t = 0; t < tokens; ++t) {
    int expert = static_cast<int>(random() % 4);
    for (std::int64_t k = 0; k < kCountedTopk; ++k) {
      routing.experts.push_back(ExpertId{expert});
      routing.weights.push_back(1);
      expert += 1 + static_cast<int>(random() % 4);
    }
  }
  return routing;
}

/// A batch on its way, with everything that it keeps from one exchange to the next.
class Traveller {
 public:
  Traveller(Communicator& world, const ExpertPlacement& placement)
      : exchange_(world, placement),
        rows_(world.make_row_memory(), kCountedHidden * 2, kCountedTopk),
        outputs_(world.make_row_memory()) {}

  void leave(const Routing& routing) {
    rows_.resize(routing.num_tokens);
    rows_.set_experts(routing);
    exchange_.plan_sends(routing, plan_);
    dispatch_ = exchange_.dispatch(rows_, plan_, {});
  }
  void arrive(const Routing& routing) {
    dispatch_.wait();
    exchange_.finish_plan(routing, dispatch_, plan_);
    const std::int64_t rows = plan_.execute.num_outputs();
    outputs_.renew(rows * kCountedHidden);
    results_ = exchange_.combine(MatrixView<const float>(outputs_.data(), rows, kCountedHidden),
                                 plan_, {});
  }
  void come_home() {
    results_.wait();
    dispatch_ = {};
    results_ = {};
  }

 private:
  TokenExchange exchange_;
  WireRows rows_;
  ExchangePlan plan_;
  SentRows<float> outputs_;
  PendingDispatch dispatch_;
  PendingResults results_;
};

/// Memory that they still read could not be used again. Returns what the wait itself allocates.
std::int64_t wait_for_neighbours(Communicator& world) {
  const std::int64_t before = test::allocations_of_thread();
  world.barrier();
  return test::allocations_of_thread() - before;
}

}  // namespace

void check_allocations(Communicator& world) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  const ExpertPlacement placement(kCountedExperts, world.size());
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::vector<Routing> routings;
  for (const std::int64_t tokens : {1, 40, 0, 200}) {
    routings.push_back(random_routing(tokens, random));
  }
  Traveller first(world, placement);
  Traveller second(world, placement);
  std::int64_t before = 0;
  std::int64_t of_waits = 0;
  for (int round = 0; round < 8; ++round) {
    if (round == 4) {
      before = test::allocations_of_thread();
      of_waits = 0;
    }
    for (const Routing& routing : routings) {
      first.leave(routing);
      first.arrive(routing);
      first.come_home();
      of_waits += wait_for_neighbours(world);
      first.leave(routing);
      second.leave(routing);
      first.arrive(routing);
      second.arrive(routing);
      first.come_home();
      second.come_home();
      of_waits += wait_for_neighbours(world);
    }
  }
  EXPECT_GT(before, 0);  // the counter counts
  EXPECT_EQ(test::allocations_of_thread() - before - of_waits, 0);
}

}  // namespace moesaic
