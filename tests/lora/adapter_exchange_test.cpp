#include "src/lora/adapter_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/thread_communicator.h"
#include "src/lora/adapter_writer.h"

namespace moesaic {
namespace {

constexpr std::int64_t kExperts = 6;

AdapterSpec adapter(std::int64_t layer, std::int64_t expert, bool shares_a = false) {
  return {.site = {.module = std::to_string(layer) + "." + std::to_string(expert) +
                             (shares_a ? "up" : "gate"),
                   .layer = layer,
                   .expert = expert,
                   .out = 5,
                   .in = 3},
          .rank = 1 + (expert + 1) % 3,
          .shares_a = shares_a};
}

/// Two common ones, then those of the experts of two layers, each with an up that has the A of its
/// gate.
std::vector<AdapterSpec> model_specs() {
  std::vector<AdapterSpec> specs = {adapter(0, -1), adapter(1, -1)};
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      specs.push_back(adapter(layer, expert));
      specs.push_back(adapter(layer, expert, true));
    }
  }
  return specs;
}

/// A value that tells where it belongs.
float expected(std::int64_t index, bool is_b, std::size_t at) {
  return static_cast<float>(index * 100 + (is_b ? 50 : 0)) + static_cast<float>(at);
}

void fill(std::int64_t index, std::span<float> a, std::span<float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = expected(index, false, i);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = expected(index, true, i);
}

/// Ranks as `replicas` copies of the experts: what is distributed is collected again.
void check_round_trip(int ranks, int replicas) {
  const std::vector<AdapterSpec> all = model_specs();
  run_thread_ranks(ranks, [&](Communicator& world) {
    const int share = ranks / replicas;
    const HeldExperts held(ExpertPlacement(kExperts, share), world.rank() % share);
    const AdapterSet set(specs_of_rank(all, held), Format::f32);
    const AdapterExchange exchange(set, all, world, world.rank() < share);
    std::vector<float> values(set.masters().size(), -1);
    std::int64_t next = 0;
    exchange.distribute(values,
                        [&](std::span<float> a, std::span<float> b) { fill(next++, a, b); });
    for (std::int64_t i = 0; i < set.size(); ++i) {
      const auto at = static_cast<std::size_t>(set.places()[static_cast<std::size_t>(i)].b.first);
      const auto found = std::ranges::find(
          all, set.spec(i).site.module, [](const AdapterSpec& spec) { return spec.site.module; });
      EXPECT_EQ(values[at], expected(found - all.begin(), true, 0));
    }
    EXPECT_EQ(std::ranges::count(values, -1.0F), 0);

    std::int64_t seen = 0;
    exchange.collect(values,
                     [&](std::int64_t index, std::span<const float> a, std::span<const float> b) {
                       EXPECT_EQ(index, seen++);
                       const AdapterSpec& spec = all[static_cast<std::size_t>(index)];
                       EXPECT_EQ(std::ssize(a), spec.shares_a ? 0 : spec.rank * 3);
                       ASSERT_EQ(std::ssize(b), spec.rank * 5);
                       for (std::size_t i = 0; i < a.size(); ++i)
                         EXPECT_EQ(a[i], expected(index, false, i));
                       for (std::size_t i = 0; i < b.size(); ++i)
                         EXPECT_EQ(b[i], expected(index, true, i));
                     });
    EXPECT_EQ(seen, world.rank() == 0 ? std::ssize(all) : 0);
  });
}

TEST(AdapterExchange, ValuesGoToTheirRanksAndBack) {
  for (const int ranks : {1, 2, 3, 4, 6}) check_round_trip(ranks, 1);
}

TEST(AdapterExchange, ReplicasOfExpertsCountOnce) {
  check_round_trip(2, 2);
  check_round_trip(4, 2);
  check_round_trip(6, 3);
}

/// Of rank 8; `experts` of the layer, or none.
AdapterSpec saved(std::int64_t layer, std::int64_t out, std::int64_t expert = -1,
                  std::optional<MlpPart> part = {}) {
  const std::string path = "model.layers." + std::to_string(layer);
  const bool is_up = part == MlpPart::up;
  AdapterSite site{.kind = AdapterKind::attention,
                   .module = path + ".self_attn." + std::to_string(out) + "_proj",
                   .layer = layer,
                   .out = out,
                   .in = 1000};
  if (expert >= 0) {
    site.kind = AdapterKind::experts;
    site.module = path + ".mlp.experts." + std::to_string(expert) +
                  (is_up                   ? ".up_proj"
                   : part == MlpPart::gate ? ".gate_proj"
                                           : ".down_proj");
    site.expert = expert;
    site.num_experts = 2;
    site.part = part;
    site.fused5 = path + ".mlp.experts";
  }
  return {.site = std::move(site), .rank = 8, .alpha = 8, .scale = 1};
}

std::int64_t saving_bytes_in(AdapterLayout layout, std::span<const AdapterSpec> adapters) {
  return saving_bytes({.description = {.layout = layout}, .adapters = adapters, .sites = {}});
}

TEST(AdapterExchange, MemoryOfSavingIsThatOfAPieceAndOfALayersFusedModules) {
  constexpr AdapterLayout k4 = AdapterLayout::transformers4;
  constexpr AdapterLayout k5 = AdapterLayout::transformers5;
  std::vector<AdapterSpec> adapters = {saved(0, 2000)};
  std::int64_t piece = 8 * 24000;  // there and in order
  EXPECT_EQ(saving_bytes_in(k4, adapters), piece);
  for (const std::int64_t expert : {0, 1}) {
    for (const MlpPart part : {MlpPart::gate, MlpPart::up}) {
      adapters.push_back(saved(0, 500, expert, part));
    }
    adapters.push_back(saved(0, 1000, expert, MlpPart::down));
  }
  piece += 8 * 2 * (12000 + 12000 + 16000);
  EXPECT_EQ(saving_bytes_in(k4, adapters), piece) << "each adapter has tensors of its own";
  // A_gate above A_up; in B zeros beside both.
  const std::int64_t fused = 32 * (1000 + 2 * 500) + 16 * (1000 + 1000);
  EXPECT_EQ(saving_bytes_in(k5, adapters), piece + 4 * fused);
  // However many there are, four million values travel together, or one adapter with more.
  for (std::int64_t i = 0; i < 200; ++i) adapters.push_back(saved(2 + i, 4000));
  EXPECT_LE(saving_bytes_in(k4, adapters), 8 * (1 << 22));
  adapters.push_back(saved(500, 1000000));
  EXPECT_EQ(saving_bytes_in(k4, adapters), 8 * 8 * 1001000);
}

}  // namespace
}  // namespace moesaic
