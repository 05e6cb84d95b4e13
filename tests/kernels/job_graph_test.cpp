#include "kernels/job_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/outer_gemm.h"
#include "kernels/transposed_gemm.h"
#include "kernels/whole_product.h"
#include "tests/kernels/runnable_kernels.h"

namespace {

/// Allocations that succeed before one fails; negative: all do.
std::atomic<std::int64_t> allocations_left = -1;

}  // namespace

// Of this test program: allocations fail on demand. (Inlined, GCC takes new and free for a
// mismatch.)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left.fetch_sub(1) == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace moesaic {
namespace {

using Kind = JobGraph::Job::Kind;

/// Slabs of one number: packing writes it over the whole place, multiplying finds it there still.
class Numbers final : public JobGraph::Work {
 public:
  Numbers(JobGraph& graph, std::int64_t bytes) : graph_(graph), bytes_(bytes) {}

  void pack(const JobGraph::Job& job, int) override {
    if (job.slab == failing_slab && job.first + job.count == bytes_) {
      let_others_run();  // to jobs that wait for this one
      throw std::bad_alloc();
    }
    std::byte* const place = graph_.place(job.slab) + job.first;
    std::fill_n(place, job.count, static_cast<std::byte>(job.slab));
  }
  void multiply(const JobGraph::Job& job, std::int64_t, int) override {
    if (job.slab % 7 == 0 && job.first == 0) let_others_run();  // as far ahead as they may
    const std::byte* const place = graph_.place(job.slab);
    for (std::int64_t i = 0; i < bytes_; ++i) {
      if (place[i] != static_cast<std::byte>(job.slab)) ++wrong;
    }
    const std::ptrdiff_t beside = graph_.slab(job.slab).beside;
    if (beside >= 0 &&
        *graph_.place(static_cast<std::size_t>(beside)) != static_cast<std::byte>(beside)) {
      ++wrong;
    }
    ++multiplied;
  }

  std::size_t failing_slab = ~std::size_t{0};
  std::atomic<int> wrong = 0;
  std::atomic<int> multiplied = 0;

 private:
  static void let_others_run() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

  JobGraph& graph_;
  std::int64_t bytes_;
};

constexpr std::int64_t kBytes = 4096;

void add_slabs(JobGraph& graph, int count) {
  graph.begin();
  for (int i = 0; i < count; ++i) {
    graph.add_in_turn(graph.add_slab({.bytes = kBytes}), {kBytes, 1024}, {6, 1});
  }
}

TEST(JobGraph, a_slab_is_multiplied_in_turn_with_the_packing_of_the_next) {
  JobGraph graph;
  Numbers work(graph, kBytes);
  ThreadPool pool(1);
  graph.add_in_turn(graph.add_slab({.bytes = kBytes}), {kBytes, kBytes}, {2, 2});
  graph.begin();  // nothing waits any more
  for (int i = 0; i < 3; ++i) {
    graph.add_in_turn(graph.add_slab({.bytes = kBytes}), {kBytes, kBytes}, {2, 2});
  }
  graph.run(pool, work);
  std::string order;
  for (std::int64_t i = 0; graph.job(i) != nullptr; ++i) {
    order += graph.job(i)->kind == Kind::pack ? " pack " : " multiply ";
    order += std::to_string(graph.job(i)->slab);
  }
  EXPECT_EQ(order, " pack 0 pack 1 multiply 0 pack 2 multiply 1 multiply 2");
}

TEST(JobGraph, slabs_keep_their_place_until_they_are_multiplied) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    JobGraph graph;
    Numbers work(graph, kBytes);
    add_slabs(graph, 200);
    graph.run(pool, work);
    EXPECT_EQ(work.wrong, 0) << threads << " threads";
    EXPECT_EQ(work.multiplied, 1200);
    EXPECT_LE(graph.packed_bytes(), (6 + threads) * kBytes * 5 / 4) << "200 slabs are too many";
  }
}

// As products of columns have it: one slab is read by the jobs of many.
TEST(JobGraph, a_slab_beside_others_stays_until_the_last_has_been_multiplied) {
  ThreadPool pool(3);
  JobGraph graph;
  Numbers work(graph, kBytes);
  for (int part = 0; part < 20; ++part) {
    const std::size_t shared = graph.add_slab({.bytes = 3 * kBytes});
    graph.add_pack_jobs(shared, {kBytes, 256});
    for (int i = 0; i < 9; ++i) {
      const std::size_t slab = graph.add_slab(
          {.bytes = kBytes,
           .beside = static_cast<std::ptrdiff_t>(shared),
           .continues = part == 0 ? -1 : static_cast<std::ptrdiff_t>(shared) - 10 + 1 + i});
      graph.add_pack_jobs(slab, {kBytes, 1024});
      graph.add_multiply_jobs(slab, {3, 1});
    }
  }
  graph.run(pool, work);
  EXPECT_EQ(work.wrong, 0);
  EXPECT_EQ(work.multiplied, 20 * 9 * 3);
}

TEST(JobGraph, the_first_exception_ends_every_wait) {
  ThreadPool pool(4);
  JobGraph graph;
  for (std::size_t round = 0; round < 200; ++round) {
    Numbers work(graph, kBytes);
    work.failing_slab = round % 20;
    add_slabs(graph, 20);
    EXPECT_THROW(graph.run(pool, work), std::bad_alloc);
    EXPECT_LT(work.multiplied, 120);
    work.failing_slab = ~std::size_t{0};
    work.multiplied = 0;
    add_slabs(graph, 20);
    graph.run(pool, work);  // the graph is none the worse
    EXPECT_EQ(work.multiplied, 120);
    EXPECT_EQ(work.wrong, 0);
  }
}

/// A layer of experts whose matrices have an order of k, so that jobs allocate.
struct OrderedLayer {
  OrderedLayer() : order(kWidth) {
    std::iota(order.rbegin(), order.rend(), 0);
    matrix =
        pack_matrix({.format = Format::bf16}, normal_numbers(kWidth * kWidth, 1), kWidth, kWidth);
    matrix.matrix.order = order.data();
    for (std::int64_t row = 0; row < kRows; ++row) {
      rows.push_back(reinterpret_cast<const std::byte*>(x.data() + row * kWidth));
    }
    for (std::int64_t row = 0; row < kRows; row += 300) {
      groups.push_back({.first_row = row,
                        .num_rows = 300,
                        .weights = {matrix.matrix, matrix.matrix, matrix.matrix}});
    }
  }

  /// All products of the layer, with memory that is still to be allocated.
  void run(ThreadPool& pool) {
    GroupedGemm gemm(
        {.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
    gemm.run_mlp(input(), groups, {}, output());
  }
  [[nodiscard]] RowSource input() const {
    return {.rows = rows.data(), .num_rows = kRows, .depth = kWidth};
  }
  [[nodiscard]] GemmOutput output() {
    return {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = kWidth * 4};
  }

  static constexpr std::int64_t kWidth = 32;
  static constexpr std::int64_t kRows = 1200;
  std::vector<std::int32_t> order;
  OwnedMatrix matrix;
  std::vector<float> x = normal_numbers(kRows * kWidth, 2);
  std::vector<float> out = std::vector<float>(kRows * kWidth);
  std::vector<const std::byte*> rows;
  std::vector<MlpGroup> groups;
};

/// Whether the operators above are those of this program: clang's sanitizers bring their own.
bool own_operators() {
  allocations_left = 0;
  try {
    ::operator delete(::operator new(1));
  } catch (const std::bad_alloc&) {
  }
  return allocations_left.exchange(-1) != 0;
}

TEST(JobGraph, threads_without_memory_for_the_rest_of_them_end) {
  if (!own_operators()) GTEST_SKIP() << "memory cannot be refused in this build";
  constexpr int kThreads = 5;
  int failed = 0;
  for (bool done = false; !done;) {
    allocations_left = failed;
    try {
      const ThreadPool pool(kThreads);
      done = true;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    allocations_left = -1;
  }
  EXPECT_GE(failed, kThreads - 1);
}

TEST(JobGraph, a_product_without_memory_throws_and_does_not_wait_for_ever) {
  if (!own_operators()) GTEST_SKIP() << "memory cannot be refused in this build";
  ThreadPool pool(4);
  OrderedLayer layer;
  layer.run(pool);
  const std::vector<float> expected = layer.out;
  int failed = 0;
  for (int round = 0; round < 30; ++round) {
    bool done = false;
    for (std::int64_t allocations = 0; !done; ++allocations) {
      allocations_left = allocations;
      try {
        layer.run(pool);
        done = allocations_left >= 0;  // else one failed behind the products
      } catch (const std::bad_alloc&) {
        ++failed;
      }
      allocations_left = -1;
    }
    ASSERT_EQ(layer.out, expected);
  }
  EXPECT_GT(failed, 30 * 4);
}

/// How much each of some calls of all products allocates.
std::vector<std::int64_t> allocations_of_calls(int threads, int calls) {
  OrderedLayer layer;
  layer.matrix.matrix.order = nullptr;
  for (MlpGroup& group : layer.groups) {
    group.weights.gate.order = group.weights.up.order = group.weights.down.order = nullptr;
  }
  ThreadPool pool(threads);
  const Compute compute{
      .isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool};
  GroupedGemm gemm(compute);
  TransposedGemm transposed(compute);
  OuterGemm outer(compute);
  const RowSource input = layer.input();
  const GemmOutput output = layer.output();
  Buffer<float> gradient(OrderedLayer::kWidth * OrderedLayer::kWidth);
  const GemmGroup group{.num_rows = 700, .weights = layer.matrix.matrix};
  const OuterGroup sum{.num_rows = 700,
                       .result = gradient.matrix(OrderedLayer::kWidth, OrderedLayer::kWidth)};
  std::vector<std::int64_t> counts;
  for (int call = 0; call < calls; ++call) {
    constexpr std::int64_t kMany = 1 << 30;
    allocations_left = kMany;
    gemm.run(input, {&group, 1}, output);
    gemm.run_mlp(input, layer.groups, {}, output);
    transposed.run(input, {&group, 1}, output);
    outer.run({.y = input, .x = input}, {&sum, 1});
    counts.push_back(kMany - allocations_left.exchange(-1));
  }
  return counts;
}

TEST(JobGraph, products_allocate_nothing_from_their_second_call_on) {
  if (!own_operators()) GTEST_SKIP() << "allocations cannot be counted in this build";
  const std::vector<std::int64_t> alone = allocations_of_calls(1, 4);
  EXPECT_GT(alone[0], 0) << "the counter counts";
  EXPECT_EQ(std::ranges::max(std::span(alone).subspan(1)), 0);
  // A thread takes its memory when it has its first job.
  EXPECT_EQ(std::ranges::min(allocations_of_calls(2, 30)), 0);
}

TEST(JobGraph, memory_of_a_layer_is_that_of_a_few_slabs) {
  constexpr std::int64_t kHidden = 2048;
  constexpr std::int64_t kWidth = 768;
  constexpr std::int64_t kRows = 4096 * 2;
  const Buffer<float> x(kHidden);
  const std::vector<const std::byte*> rows(kRows, reinterpret_cast<const std::byte*>(x.data()));
  Buffer<float> y(kRows * kHidden);
  const Layout layout{.format = Format::int4};  // the fastest without AMX
  const OwnedMatrix gate =
      pack_matrix(layout, std::vector<float>(kWidth * kHidden), kWidth, kHidden);
  const OwnedMatrix down =
      pack_matrix(layout, std::vector<float>(kWidth * kHidden), kHidden, kWidth);
  std::vector<MlpGroup> groups;
  for (std::int64_t expert = 0; expert < kRows / 256; ++expert) {
    groups.push_back({.first_row = expert * 256,
                      .num_rows = 256,
                      .weights = {gate.matrix, gate.matrix, down.matrix}});
  }
  ThreadPool pool(2);
  const Isa isa = supported_isas().back();
  GroupedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  gemm.run_mlp({.rows = rows.data(), .num_rows = kRows, .depth = kHidden}, groups, {},
               {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = kHidden * 4});
  const auto row_bytes =
      static_cast<std::int64_t>(find_gemm_kernel(isa, layout.format).packed_row_bytes(kHidden));
  EXPECT_LE(gemm.scratch_bytes(), 8 * 256 * (row_bytes + kWidth * 4));
}

}  // namespace
}  // namespace moesaic
