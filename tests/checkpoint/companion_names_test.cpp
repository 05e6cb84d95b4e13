#include "src/checkpoint/companion_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace moesaic {
namespace {

using Names = std::vector<std::string>;

TensorExists among(const std::set<std::string, std::less<>>& there) {
  return [there](std::string_view name) { return there.contains(name); };
}

TEST(CompanionNames, replace_the_last_part_of_a_weight) {
  EXPECT_EQ(companion_names("a.up_proj.weight", "weight_scale"), Names{"a.up_proj.weight_scale"});
  EXPECT_EQ(companion_names("a.up_proj.weight", "qweight"), Names{"a.up_proj.qweight"});
  EXPECT_EQ(companion_names("a.up_proj.weight", "weight"), Names{"a.up_proj.weight"});
}

TEST(CompanionNames, follow_a_fused_tensor_in_several_ways) {
  EXPECT_EQ(companion_names("a.gate_up_proj", "weight_scale_2"),
            (Names{"a.gate_up_proj_weight_scale_2", "a.gate_up_proj.weight_scale_2",
                   "a.gate_up_proj_scale_2"}));
  EXPECT_EQ(companion_names("a.gate_up_proj", "blocks").front(), "a.gate_up_proj_blocks");
  EXPECT_EQ(companion_names("a.gate_up_proj", "weight_global_scale"),
            (Names{"a.gate_up_proj_weight_global_scale", "a.gate_up_proj.weight_global_scale"}))
      << "a bare global_scale could be that of activations";
  EXPECT_EQ(companion_names("a.gate_up_proj", "weight"), Names{"a.gate_up_proj"});
}

TEST(CompanionNames, tell_whether_a_matrix_is_there_in_any_form) {
  for (const std::string name : {"x.weight", "x.qweight", "x.weight_packed"}) {
    EXPECT_TRUE(is_stored("x.weight", among({name}))) << name;
  }
  EXPECT_TRUE(is_stored("x", among({"x_blocks"})));
  EXPECT_FALSE(is_stored("x.weight", among({"x.weight_scale", "x.scales", "xx.qweight"})));
}

TEST(CompanionNames, list_what_is_there_and_what_is_missing) {
  const auto find = [](std::string_view tensor, const std::set<std::string, std::less<>>& there) {
    StoredNames names = find_stored_names(tensor, among(there));
    std::ranges::sort(names.present);
    return names;
  };
  const StoredNames plain = find("x.weight", {"x.weight", "x.bias"});
  EXPECT_EQ(plain.present, Names{"x.weight"});
  EXPECT_EQ(plain.missing, Names{});
  const StoredNames gptq =
      find("x.weight", {"x.qweight", "x.qzeros", "x.scales", "x.g_idx", "x.bias", "xx.scales"});
  EXPECT_EQ(gptq.present, (Names{"x.g_idx", "x.qweight", "x.qzeros", "x.scales"}));
  EXPECT_EQ(gptq.missing, Names{});
  const StoredNames packed = find("x.weight", {"x.weight_packed", "x.weight_shape"});
  EXPECT_EQ(packed.present, (Names{"x.weight_packed", "x.weight_shape"}));
  EXPECT_EQ(packed.missing, Names{"x.weight_scale"});
  const StoredNames blocks = find("x", {"x_blocks"});
  EXPECT_EQ(blocks.missing, Names{"x_scales"});
  const StoredNames none = find("x.weight", {"x.weight_scale"});
  EXPECT_EQ(none.present, Names{"x.weight_scale"});
  EXPECT_EQ(none.missing, Names{"x.weight"});
}

}  // namespace
}  // namespace moesaic
