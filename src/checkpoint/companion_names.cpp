#include "src/checkpoint/companion_names.h"

#include <fmt/format.h>

#include <array>

namespace moesaic {
namespace {

/// Tensors that hold a matrix's codes instead of `weight`, and what must then be there too.
struct Codes {
  std::string_view codes;
  std::string_view scales;
};
constexpr std::array<Codes, 3> kCodes = {{
    {"qweight", "scales"},              // GPTQ, AWQ
    {"weight_packed", "weight_scale"},  // compressed-tensors
    {"blocks", "scales"},               // gpt-oss
}};

/// Everything else that belongs to a quantised matrix. The last ones concern activations; of these
/// input_scale and input_global_scale are read where they are asked for.
constexpr std::array<std::string_view, 17> kCompanions = {"scales",
                                                          "qzeros",
                                                          "g_idx",
                                                          "weight_scale",
                                                          "weight_scale_inv",
                                                          "scale",
                                                          "weight_scale_2",
                                                          "weight_global_scale",
                                                          "weight_shape",
                                                          "weight_zero_point",
                                                          "weight_g_idx",
                                                          "pre_quant_scale",
                                                          "input_scale",
                                                          "input_scale_inv",
                                                          "activation_scale",
                                                          "input_global_scale",
                                                          "input_zero_point"};

std::string find_name(std::string_view tensor, std::string_view companion,
                      const TensorExists& exists) {
  for (std::string& name : companion_names(tensor, companion)) {
    if (exists(name)) return std::move(name);
  }
  return "";
}

}  // namespace

std::vector<std::string> companion_names(std::string_view tensor, std::string_view companion) {
  constexpr std::string_view kWeight = "weight";
  constexpr std::string_view kWeightSuffix = ".weight";
  if (companion == kWeight) return {std::string(tensor)};
  if (tensor.ends_with(kWeightSuffix)) {
    tensor.remove_suffix(kWeight.size());
    return {fmt::format("{}{}", tensor, companion)};
  }
  std::vector<std::string> names = {fmt::format("{}_{}", tensor, companion),
                                    fmt::format("{}.{}", tensor, companion)};
  // Which of the two scales of a matrix a bare "global_scale" would be is not known.
  if (companion.starts_with("weight_") && companion != "weight_global_scale") {
    names.push_back(fmt::format("{}{}", tensor, companion.substr(kWeight.size())));
  }
  return names;
}

bool is_stored(std::string_view tensor, const TensorExists& exists) {
  if (exists(tensor)) return true;
  for (const Codes& kind : kCodes) {
    if (!find_name(tensor, kind.codes, exists).empty()) return true;
  }
  return false;
}

StoredNames find_stored_names(std::string_view tensor, const TensorExists& exists) {
  StoredNames names;
  const auto add = [&](std::string_view companion) {
    std::string name = find_name(tensor, companion, exists);
    const bool found = !name.empty();
    if (found) names.present.push_back(std::move(name));
    return found;
  };
  bool has_codes = add("weight");
  for (const Codes& kind : kCodes) {
    if (!add(kind.codes)) continue;
    has_codes = true;
    if (find_name(tensor, kind.scales, exists).empty()) {
      names.missing.push_back(companion_names(tensor, kind.scales).front());
    }
  }
  if (!has_codes) names.missing.emplace_back(tensor);
  for (const std::string_view companion : kCompanions) add(companion);
  return names;
}

}  // namespace moesaic
