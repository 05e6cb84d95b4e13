#include "tests/moe/exchange_allocations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "src/moe/token_exchange.h"

namespace {

thread_local std::int64_t num_allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++num_allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Not inlined, so that g++ does not take free() for a wrong way to give back what `new` gave.
[[gnu::noinline]] void release(void* memory) noexcept {
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

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

/// Memory that they still read could not be used again.
void wait_for_neighbours(Communicator& world) {
  const std::int64_t before = num_allocations;
  world.barrier();
  num_allocations = before;
}

/// Whether memory comes from the functions above. Sanitizers may have functions of their own.
bool own_operators() {
  const std::int64_t before = num_allocations;
  ::operator delete(::operator new(1));
  return num_allocations > before;
}

}  // namespace

void check_allocations(Communicator& world) {
  if (!own_operators()) GTEST_SKIP() << "allocations cannot be counted in this build";
  const ExpertPlacement placement(kCountedExperts, world.size());
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::vector<Routing> routings;
  for (const std::int64_t tokens : {1, 40, 0, 200}) {
    routings.push_back(random_routing(tokens, random));
  }
  Traveller first(world, placement);
  Traveller second(world, placement);
  std::int64_t before = 0;
  for (int round = 0; round < 8; ++round) {
    if (round == 4) before = num_allocations;
    for (const Routing& routing : routings) {
      first.leave(routing);
      first.arrive(routing);
      first.come_home();
      wait_for_neighbours(world);
      first.leave(routing);
      second.leave(routing);
      first.arrive(routing);
      second.arrive(routing);
      first.come_home();
      second.come_home();
      wait_for_neighbours(world);
    }
  }
  EXPECT_GT(before, 0);  // the counter counts
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace moesaic
