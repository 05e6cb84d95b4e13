// Losses and gradients of whole samples against PEFT's (float32), and their bits.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "comm/thread_communicator.h"
#include "tests/support/golden_adapters.h"
#include "tests/support/test_engine.h"
#include "tests/train/golden_adapter.h"

namespace moesaic {
namespace {

/// How far the gradients of factors are from PEFT's.
struct Distances {
  double worst = 0;  // of one tensor
  double all = 0;    // of all together
  std::string where;
};

Distances distances(const GoldenAdapter& golden, const PassResults& results, double tokens) {
  const AdapterSet expected = golden.gradients();
  Distances found;
  double difference_all = 0;
  double size_all = 0;
  for (std::int64_t index = 0; index < expected.size(); ++index) {
    const std::string& module = expected.spec(index).site.module;
    const AdapterFactors<const float> its = expected.factors(index);
    const std::vector<std::int64_t>& sums = results.sums.at(module);
    std::size_t at = 0;
    for (const MatrixView<const float>& factor : {its.a, its.b}) {
      double difference = 0;
      double size = 0;
      for (std::int64_t i = 0; i < factor.rows() * factor.cols(); ++i, ++at) {
        const double wanted = factor.data()[i];
        const double d = AdapterGradients::value(sums[at]) / tokens - wanted;
        difference += d * d;
        size += wanted * wanted;
      }
      difference_all += difference;
      size_all += size;
      if (size == 0) {
        EXPECT_EQ(difference, 0) << module;  // an expert without rows
      } else if (std::sqrt(difference / size) > found.worst) {
        found.worst = std::sqrt(difference / size);
        found.where = module;
      }
    }
    EXPECT_EQ(at, sums.size());
  }
  found.all = std::sqrt(difference_all / size_all);
  return found;
}

double trained_tokens(std::span<const TrainSample> samples) {
  std::int64_t count = 0;
  for (const TrainSample& sample : samples) count += sample.trained_tokens();
  return static_cast<double>(count);
}

class SamplePassOf : public testing::TestWithParam<std::string> {
 protected:
  GoldenAdapter golden_{GetParam()};
};

TEST_P(SamplePassOf, logits_with_the_adapter_are_those_of_peft) {
  run_thread_ranks(1, [&](Communicator& world) {
    AdaptedRank rank(golden_, {}, world);
    for (std::size_t s = 0; s < golden_.samples().size(); ++s) {
      const auto tokens = golden_.samples()[s].tokens;
      const auto length = static_cast<std::int64_t>(tokens.size());
      const auto expected = golden_.floats("logits." + std::to_string(s));
      EXPECT_LE(relative_l2(run_sequence(rank.transformer(), tokens, length, length), expected),
                1e-4);
      EXPECT_LE(relative_l2(run_sequence(rank.transformer(), tokens, 1, length), expected), 1e-4);
    }
  });
}

TEST_P(SamplePassOf, gradients_are_those_of_peft) {
  const PassResults results = run_pass(golden_, golden_.first_step(), {.threads = 2});
  const double tokens = trained_tokens(golden_.first_step());
  double loss = 0;
  for (const double of_sample : results.losses) loss += of_sample;
  EXPECT_NEAR(loss / tokens, golden_.floats("losses").front(), 1e-5);
  const Distances found = distances(golden_, results, tokens);
  EXPECT_LE(found.worst, 1e-4) << found.where;
}

TEST_P(SamplePassOf, bf16_is_no_further_from_float32_than_peft) {
  // Of PEFT's own bf16 (adapters in f32, its default), with routing as it falls.
  const std::map<std::string, double> of_peft = {
      {"qwen3_moe", 0.023},          {"qwen2_moe-rslora-idle", 0.021},
      {"olmoe-patterns", 0.034},     {"mixtral-some", 0.016},
      {"granitemoe-joined", 0.030},  {"mixtral-fused", 0.022},
      {"glm4_moe", 0.017},           {"hy_v3-fused", 0.024},
      {"ernie4_5_moe", 0.019},       {"gpt_oss-attention", 0.024},
      {"gpt_oss-experts4", 0.025},   {"gpt_oss-experts5", 0.043},
      {"deepseek_v3", 0.024},        {"deepseek_v3-fused", 0.035},
      {"deepseek_v2-latent", 0.018}, {"glm4_moe_lite-attention", 0.022},
      {"qwen3_next", 0.109},         {"qwen3_next-fused", 0.130},
      {"qwen3_5_moe", 0.038}};
  for (const Isa isa : supported_isas()) {
    const PassResults results =
        run_pass(golden_, golden_.first_step(), {.precision = Precision::bf16, .isa = isa});
    const Distances found = distances(golden_, results, trained_tokens(golden_.first_step()));
    EXPECT_LE(found.all, of_peft.at(GetParam())) << isa_name(isa) << " " << found.where;
  }
}

TEST_P(SamplePassOf, bits_do_not_depend_on_how_it_is_run) {
  const int most = static_cast<int>(std::min<std::int64_t>(4, golden_.config().num_experts));
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const auto expect_same = [&, expected = run_pass(golden_, golden_.samples(),
                                                     {.precision = precision})](PassSetup setup) {
      setup.precision = precision;
      const PassResults results = run_pass(golden_, golden_.samples(), setup);
      EXPECT_EQ(results.losses, expected.losses) << setup.ranks << " ranks";
      EXPECT_TRUE(results.sums == expected.sums) << setup.ranks << " ranks";
      EXPECT_EQ(results.routers.chosen, expected.routers.chosen);
      EXPECT_EQ(results.routers.probability, expected.routers.probability);
    };
    expect_same({.threads = 3});
    expect_same({.recompute = Recompute::always});
    expect_same({.samples_at_once = 1});
    expect_same({.samples_at_once = 2, .is_used = true});
    expect_same({.ranks = 2, .recompute = Recompute::always, .is_used = true});
    for (int ranks = 2; ranks <= most; ++ranks) {
      expect_same({.ranks = ranks});
      expect_same({.ranks = ranks, .recompute = Recompute::always, .samples_at_once = 1});
    }
    expect_same({.ranks = 4, .expert_replicas = 2});
  }
}

TEST_P(SamplePassOf, layers_that_compute_again_share_the_memory_for_it) {
  run_thread_ranks(1, [&](Communicator& world) {
    AdaptedRank rank(golden_, {}, world);
    SamplePass pass(rank.transformer(), Recompute::always);
    AdapterGradients gradients(rank.adapters().places(),
                               find_vector_kernels(supported_isas().back()));
    pass.backward(pass.forward(golden_.first_step()), gradients);
    const MicroBatch next = pass.forward(golden_.first_step());  // with memory of the one before
    std::set<std::pair<const MixerKind*, const FeedForwardKind*>> kinds;
    for (const LayerConfig& layer : golden_.config().layers) {
      kinds.emplace(layer.mixer.get(), layer.feed_forward.get());
    }
    const auto count = [&](const auto& has) {
      return static_cast<std::size_t>(std::ranges::count_if(next.kept.layers, has));
    };
    EXPECT_EQ(count([](const KeptLayer& layer) { return layer.mixer != nullptr; }), kinds.size());
    EXPECT_EQ(count([](const KeptLayer& layer) { return layer.middle.size() > 0; }), kinds.size());
  });
}

/// --numerics portable: instruction sets of one order of sums.
TEST_P(SamplePassOf, bits_do_not_depend_on_the_instruction_set) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const PassResults expected =
        run_pass(golden_, golden_.first_step(), {.precision = precision, .isa = Isa::scalar});
    for (const Isa isa : tile_order_isas()) {
      const PassResults results =
          run_pass(golden_, golden_.first_step(), {.precision = precision, .isa = isa});
      EXPECT_EQ(results.losses, expected.losses) << isa_name(isa);
      EXPECT_TRUE(results.sums == expected.sums) << isa_name(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, SamplePassOf, testing::ValuesIn(test::kGoldenAdapters),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moesaic
