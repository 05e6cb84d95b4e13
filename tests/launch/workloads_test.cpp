#include "launch/job/workloads.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/outer_gemm.h"
#include "kernels/whole_product.h"
#include "launch/plan/training_cost.h"

namespace moesaic {
namespace {

TEST(Workloads, TextsThatGoOnHaveTheirTokensInABatchThatIsSmaller) {
  Options options;
  options.batch_size = 2;
  options.parallel = 8;
  options.ctx_size = 100;
  const TextSizes sizes{.texts = 40, .longest_prompt = 10, .longest_text = 20};
  EXPECT_EQ(generate_workload(options, 1, sizes).batch_tokens, 8);
  EXPECT_EQ(generate_workload(options, 10, sizes).batch_tokens, 4);
  EXPECT_EQ(open_workload(options, ModelConfig()).batch_tokens, 8);
  options.batch_size = 64;
  EXPECT_EQ(generate_workload(options, 1, sizes).batch_tokens, 64);
  EXPECT_EQ(generate_workload(options, 10, sizes).batch_tokens, 40);
  EXPECT_EQ(open_workload(options, ModelConfig()).batch_tokens, 64);
}

TEST(Workloads, ARowMeetsAdaptersOfHeadsOnceAHead) {
  AdapterSpec adapter;
  adapter.site.out = 40;
  adapter.site.in = 500;
  adapter.rank = 2;
  const AdapterNumbers once = adapter_numbers({adapter}, ModelConfig());
  EXPECT_EQ(once.rows, 2 * 540);
  adapter.site.heads = 5;
  const AdapterNumbers often = adapter_numbers({adapter}, ModelConfig());
  EXPECT_EQ(often.common, once.common);
  EXPECT_EQ(often.rows, 2 * (2 * 5 * 500 + 40)) << "keys and values";
}

TEST(Workloads, MlpsAloneKeepWhatTheirAdaptersMake) {
  const auto spec = [](std::int64_t layer, std::int64_t expert, std::optional<MlpPart> part) {
    AdapterSpec adapter;
    adapter.site.layer = layer;
    adapter.site.expert = expert;
    adapter.site.part = part;
    adapter.rank = 8;
    return adapter;
  };
  const std::vector<AdapterSpec> adapters = {
      spec(0, -1, {}),           spec(0, -1, {}),           spec(0, -1, MlpPart::up),
      spec(1, -1, {}),           spec(1, 0, MlpPart::gate), spec(1, 1, MlpPart::gate),
      spec(1, 1, MlpPart::down),
  };
  const InnerNumbers numbers = inner_numbers(adapters, 4);
  EXPECT_EQ(numbers.kept, 8 + 4 * 2 * 8);
  EXPECT_EQ(numbers.largest, 4 * 2 * 8);
  EXPECT_EQ(numbers.working, 2 * (2 * 8 + 4 * 2 * 8)) << "of a mixer and of an MLP";
}

TEST(Workloads, TrainingHasRoomForTheRowsThatProductsOfGradientsPack) {
  constexpr std::int64_t kTokens = 100;
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 64;
  config.experts_per_token = 4;
  Options options;
  options.batch_size = kTokens;
  const auto spec = [](std::int64_t out, std::int64_t in, std::int64_t stacked_rows,
                       std::int64_t expert) {
    AdapterSpec adapter;
    adapter.site.expert = expert;
    if (expert >= 0) adapter.site.part = MlpPart::gate;
    adapter.site.stacked_rows = stacked_rows;
    adapter.site.out = out;
    adapter.site.in = in;
    adapter.rank = 24;
    return adapter;
  };
  const auto more = [&](const std::vector<AdapterSpec>& adapters, int threads) {
    SampleSizes sizes{.longest = kTokens, .threads = threads};
    const std::int64_t none = sft_workload(options, config, sizes, false).kept_bytes;
    sizes.adapters = adapters;
    const InnerNumbers inner = inner_numbers(adapters, config.experts_per_token);
    return sft_workload(options, config, sizes, false).kept_bytes - none -
           kTokens * 4 * (inner.kept + inner.working);
  };
  const GemmKernel& kernel = find_gemm_kernel(supported_isas().back(), Format::bf16);
  for (const int threads : {1, 64}) {
    const auto packed = [&](std::int64_t rows, std::int64_t one, std::int64_t other) {
      return OuterGemm::packed_bytes(kernel, {rows, one, other}, threads);
    };
    EXPECT_EQ(more({spec(40, 500, 0, -1)}, threads), packed(kTokens, 500, 24));
    EXPECT_EQ(more({spec(500, 40, 0, -1)}, threads), packed(kTokens, 500, 24));
    EXPECT_EQ(more({spec(40, 500, 80, -1), spec(40, 500, 80, -1)}, threads),
              packed(kTokens, 500, 48))
        << "one product for both A";
    EXPECT_EQ(more({spec(40, 500, 0, 0), spec(40, 500, 0, 1)}, threads),
              packed(2 * 4 * kTokens, 500, 24))
        << "of experts with twice the average load";
    AdapterSpec of_heads = spec(40, 500, 0, -1);
    of_heads.site.heads = 5;
    EXPECT_EQ(inner_numbers(std::span(&of_heads, 1), 4).working, 2 * 5 * 24);
    EXPECT_EQ(more({of_heads}, threads), packed(5 * kTokens, 500, 24)) << "rows of each head";
  }
}

/// What a GroupedGemm keeps for MLPs of 256 bf16 rows each.
std::int64_t kept_for_mlps(const MlpScratch& size, const OwnedMatrix& gate,
                           const OwnedMatrix& down) {
  const std::int64_t num_rows = size.mlps * size.rows;
  const Buffer<BFloat16> x(size.hidden);
  const std::vector<const std::byte*> rows(static_cast<std::size_t>(num_rows),
                                           reinterpret_cast<const std::byte*>(x.data()));
  Buffer<float> y(num_rows * size.hidden);
  std::vector<MlpGroup> groups;
  for (std::int64_t i = 0; i < size.mlps; ++i) {
    groups.push_back({.first_row = i * size.rows,
                      .num_rows = size.rows,
                      .weights = {gate.matrix, gate.matrix, down.matrix}});
  }
  ThreadPool pool(size.threads);
  const Isa isa = supported_isas().back();
  GroupedGemm gemm({.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  gemm.run_mlp({.rows = rows.data(),
                .num_rows = num_rows,
                .depth = size.hidden,
                .element = RowSource::Element::bf16},
               groups, {},
               {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = size.hidden * 4});
  return gemm.scratch_bytes();
}

TEST(Workloads, MlpsKeepNoMoreThanIsPlannedForAnyNumberOfThreads) {
  MlpScratch size{.hidden = 192, .width = 128, .mlps = 24};
  const Layout layout{.format = Format::bf16};
  size.packed_bytes =
      static_cast<std::int64_t>(
          find_gemm_kernel(supported_isas().back(), layout.format).packed_row_bytes(size.hidden)) /
      size.hidden;
  const std::vector<float> values(static_cast<std::size_t>(size.hidden * size.width));
  const OwnedMatrix gate = pack_matrix(layout, values, size.width, size.hidden);
  const OwnedMatrix down = pack_matrix(layout, values, size.hidden, size.width);
  // Packed rows may have a gap of two lines, which no plan counts; Buffer::reserve() takes more.
  const auto kept = [&](std::int64_t used) {
    return (used + 2 * 128 * size.mlps * size.rows) * 5 / 4;
  };
  for (const std::int64_t rows : {40, 100, 256}) {
    size.rows = rows;
    size.threads = 1;
    const std::int64_t one = kept_for_mlps(size, gate, down);
    EXPECT_LE(one, kept(mlp_scratch_bytes(size))) << rows << " rows";
    size.threads = 64;
    const std::int64_t many = kept_for_mlps(size, gate, down);
    EXPECT_LE(many, kept(mlp_scratch_bytes(size))) << rows << " rows";
    EXPECT_GT(many, 2 * one) << rows << " rows";
  }
}

}  // namespace
}  // namespace moesaic
