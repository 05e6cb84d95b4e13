// Memory that forward passes take: all of it in the first ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "comm/thread_communicator.h"
#include "src/model/gqa_attention.h"
#include "src/model/kv_pool.h"
#include "tests/support/allocations.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using test::allocations_of_all;
using test::allocations_of_thread;
using test::counts_allocations;

/// What each of some passes allocates in which two sequences get a token; from the second on they
/// are alike, as is the routing of these tokens.
std::vector<std::int64_t> allocations_of_passes(TestEngine& engine, Communicator& world,
                                                std::int64_t (*counter)() noexcept) {
  KvPool cache(engine.config(), engine.transformer().precision());
  Sequence first = cache.make_sequence(10);
  Sequence second = cache.make_sequence(10);
  const std::vector<std::int32_t> tokens = {5, 6};
  const std::vector<SequenceChunk> chunks = {{&first, std::span(tokens).first(1)},
                                             {&second, std::span(tokens).last(1)}};
  std::vector<std::int64_t> counts;
  for (int pass = 0; pass < 30; ++pass) {
    world.barrier();  // rows that a neighbour still reads would not be written over
    const std::int64_t before = counter();
    (void)engine.transformer().forward(chunks);
    counts.push_back(counter() - before);
    for (Sequence* const sequence : {&first, &second})
      sequence->truncate(0);  // states go no other way back
  }
  return counts;
}

TEST(PassAllocations, none_after_the_first_passes) {
  if (!counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  for (const char* model : {"qwen2_moe-v4", "olmoe-v4", "deepseek_v3-v4", "qwen3_next-v4"}) {
    for (const auto& [ranks, threads, halves] : {std::tuple(1, 1, HalfBatches::off),
                                                 {1, 1, HalfBatches::on},
                                                 {2, 1, HalfBatches::off},
                                                 {1, 2, HalfBatches::off}}) {
      const EngineSetup setup{.directory = std::string(MOESAIC_TEST_DATA "/models/") + model,
                              .isa = supported_isas().back(),
                              .threads = threads,
                              .moe = {.half_batches = halves}};
      run_thread_ranks(ranks, [&](Communicator& world) {
        TestEngine engine(setup, world);
        const std::vector<std::int64_t> counts = allocations_of_passes(
            engine, world, setup.threads == 1 ? allocations_of_thread : allocations_of_all);
        EXPECT_GT(counts[0], 0) << "the counter counts";
        const auto usual = std::span(counts).subspan(2);
        if (world.size() == 1 && setup.threads == 1) {
          EXPECT_EQ(std::ranges::max(usual), 0) << model;
        } else {  // what only some timing wants is taken when it wants it, once
          EXPECT_EQ(std::ranges::min(usual), 0) << model << ", " << world.size() << " ranks";
          EXPECT_LT(std::accumulate(usual.begin(), usual.end(), std::int64_t{0}), counts[0]);
        }
      });
    }
  }
}

/// Of a mixer that begins with a token which sees 5000 before it.
std::int64_t allocations_of_long_sequence(int threads) {
  GqaConfig config{.num_heads = 2, .num_kv_heads = 1, .head_dim = 8};
  config.rope.rotary_dim = config.head_dim;
  std::int64_t count = 0;
  run_thread_ranks(1, [&](Communicator& world) {
    ThreadPool pool(threads);
    LayerContext context({.compute = {.isa = Isa::scalar,
                                      .vector = &find_vector_kernels(Isa::scalar),
                                      .pool = &pool},
                          .hidden = 16},
                         world);
    const std::unique_ptr<TokenMixer> mixer = make_gqa_attention(config, context);
    const Sequence sequence;
    const Batch batch{.token_ids = {0},
                      .tokens = {{&sequence, 5000}},
                      .sequences = {{&sequence, 0, 1, 5000}},
                      .logit_rows = {}};
    const std::int64_t before = allocations_of_thread();
    mixer->begin(batch);
    count = allocations_of_thread() - before;
  });
  return count;
}

// The states of segments take memory; bits and results are the same without them.
TEST(PassAllocations, a_long_sequence_is_cut_into_segments_for_several_threads) {
  if (!counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  EXPECT_GT(allocations_of_long_sequence(2), allocations_of_long_sequence(1));
}

}  // namespace
}  // namespace moesaic
