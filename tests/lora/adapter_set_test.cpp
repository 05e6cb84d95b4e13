#include "src/lora/adapter_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"

namespace moesaic {
namespace {

AdapterSpec one_of_seven(std::int64_t layer, std::int64_t expert, const std::string& module) {
  return {.site = {.kind = expert < 0 ? AdapterKind::attention : AdapterKind::experts,
                   .module = "layers." + std::to_string(layer) + "." + module,
                   .layer = layer,
                   .expert = expert,
                   .out = 20,
                   .in = 36},
          .rank = 3,
          .alpha = 6,
          .scale = adapter_scale(6, 3, false)};
}

std::vector<AdapterSpec> seven_specs() {
  return {one_of_seven(0, -1, "q"),    one_of_seven(0, 0, "gate0"), one_of_seven(0, 1, "gate1"),
          one_of_seven(0, 2, "gate2"), one_of_seven(1, -1, "q"),    one_of_seven(1, 0, "gate0"),
          one_of_seven(1, 1, "gate1")};
}

std::vector<float> values_of(const AdapterSet& set, const std::string& module) {
  for (std::int64_t i = 0; i < set.size(); ++i) {
    if (set.spec(i).site.module != module) continue;
    const MatrixView<const float> a = set.factors(i).a;
    return {a.data(), a.data() + a.rows() * a.cols()};
  }
  return {};
}

/// Experts 1 and 2 of four are those of rank 1.
const HeldExperts kMiddle(ExpertPlacement({0, 1, 1, 0}, 2), 1);

TEST(AdapterSet, ThoseOfExpertsStandBehindAllOthers) {
  const AdapterSet set(specs_of_rank(seven_specs(), kMiddle), Format::bf16);
  std::vector<std::string> modules;
  for (std::int64_t i = 0; i < set.size(); ++i) modules.push_back(set.spec(i).site.module);
  EXPECT_EQ(modules, (std::vector<std::string>{"layers.0.q", "layers.1.q", "layers.0.gate1",
                                               "layers.0.gate2", "layers.1.gate1"}));
  EXPECT_EQ(set.num_common(), 2);
  EXPECT_EQ(set.num_common_values(), 2 * 3 * (20 + 36));
  EXPECT_EQ(std::ssize(set.masters()), 5 * 3 * (20 + 36));
  const HeldExperts last(ExpertPlacement(4, 4), 3);
  EXPECT_EQ(AdapterSet(specs_of_rank(seven_specs(), last), Format::bf16).num_common_values(),
            2 * 3 * (20 + 36));
}

TEST(AdapterSet, NewValuesDependOnSeedAndModuleAlone) {
  AdapterSet all(seven_specs(), Format::bf16);
  AdapterSet some(specs_of_rank(seven_specs(), HeldExperts(ExpertPlacement(4, 4), 1)), Format::f32);
  AdapterSet other(seven_specs(), Format::bf16);
  initialize(all, 7);
  initialize(some, 7);
  initialize(other, 8);
  for (const std::string module : {"layers.1.q", "layers.1.gate1"}) {
    EXPECT_EQ(values_of(all, module), values_of(some, module));
    EXPECT_NE(values_of(all, module), values_of(other, module));
  }
  EXPECT_NE(values_of(all, "layers.0.q"), values_of(all, "layers.1.q"));
}

TEST(AdapterSet, NewFactorsAreUniformAndZero) {
  AdapterSet set({one_of_seven(0, -1, "q")}, Format::f32);
  set.factors(0).b(1, 1) = 5;
  initialize(set, 1);
  std::vector<float> a = values_of(set, "layers.0.q");
  double sum = 0;
  for (const float value : a) {
    EXPECT_LE(std::abs(value), 1.0F / 6);  // 1 / sqrt(in)
    sum += value;
  }
  std::ranges::sort(a);
  EXPECT_EQ(std::ranges::adjacent_find(a), a.end());
  EXPECT_LT(a.front(), -0.15F);
  EXPECT_GT(a.back(), 0.15F);
  EXPECT_LT(std::abs(sum / 108), 0.046);  // five standard deviations of the mean
  const MatrixView<float> b = set.factors(0).b;
  EXPECT_TRUE(std::all_of(b.data(), b.data() + 60, [](float value) { return value == 0; }));
}

TEST(AdapterSet, ASharedFactorStandsOnceAndBothReadIt) {
  std::vector<AdapterSpec> specs = {one_of_seven(0, 0, "gate"), one_of_seven(0, 0, "up")};
  specs[1].shares_a = true;
  AdapterSet set(specs, Format::f32);
  initialize(set, 3);
  EXPECT_EQ(std::ssize(set.masters()), 3 * (36 + 20 + 20));
  EXPECT_EQ(set.factors(0).a.data(), set.factors(1).a.data());
  EXPECT_EQ(set.packed()[0].a.panels, set.packed()[1].a.panels);
  EXPECT_NE(set.factors(0).a(0, 0), 0);
  EXPECT_EQ(trainable_numbers(specs)[static_cast<std::size_t>(AdapterKind::experts)], 3 * 76);
}

TEST(AdapterSet, PackingRoundsTheValuesAsTheyAre) {
  AdapterSet exact(seven_specs(), Format::f32);
  AdapterSet rounded(seven_specs(), Format::bf16);
  ThreadPool pool(2);
  for (AdapterSet* set : {&exact, &rounded}) {
    initialize(*set, 5);
    set->factors(2).b(17, 2) = 0.1F;
    set->pack(pool);
  }
  const MatrixView<const float> a = std::as_const(exact).factors(2).a;
  std::vector<float> column(36);
  f32_format::unpack_column(reinterpret_cast<const float*>(exact.packed()[2].a.panels), 1, 36,
                            column.data());
  EXPECT_TRUE(std::ranges::equal(column, a.row(1)));
  std::vector<BFloat16> narrow_column(3);
  const Adapter& packed = rounded.packed()[2];
  EXPECT_EQ(packed.index, 2);
  EXPECT_FLOAT_EQ(packed.scale, 2);
  bf16_format::unpack_column(reinterpret_cast<const BFloat16*>(packed.b.panel(1)), 1, 3,
                             narrow_column.data());
  EXPECT_EQ(narrow_column[2].bits, to_bfloat16(0.1F).bits);
}

TEST(AdapterSet, BytesAreKnownBefore) {
  // A [3, 36]: a panel of 64 k; B [20, 3]: two panels of 32 k.
  const std::vector<AdapterSpec> specs = {one_of_seven(0, -1, "q")};
  EXPECT_EQ(AdapterSet::bytes(specs, Format::bf16), 4 * 3 * 56 + 2 * 16 * (64 + 2 * 32));
  EXPECT_EQ(AdapterSet::bytes(specs, Format::f32), 4 * 3 * 56 + 4 * 16 * (64 + 2 * 32));
}

TEST(AdapterSet, ScalesAreThoseOfPeft) {
  EXPECT_FLOAT_EQ(adapter_scale(16, 8, false), 2.0F);
  EXPECT_FLOAT_EQ(adapter_scale(16, 4, true), 8.0F);
}

}  // namespace
}  // namespace moesaic
