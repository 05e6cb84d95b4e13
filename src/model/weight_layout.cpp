#include "src/model/weight_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace moesaic {
namespace {

struct Alias {
  std::string_view spelling;  // in small letters
  std::string_view name;
};

constexpr std::array kAliases = {
    Alias{"int4_group32", "int4_group"},
    Alias{"fp8_block128", "fp8_block"},
    Alias{"amxbf16", "bf16"},
    Alias{"amxfp8", "fp8_block"},
    Alias{"amxint4", "int4"},
    Alias{"amxint4_kgroup", "int4_group"},
    Alias{"amxint8", "int8"},
    Alias{"moe_int4", "int4"},
    Alias{"moe_int8", "int8"},
    Alias{"rawint4", "int4_group"},
    Alias{"gptq_int4", "int4_group128"},
    Alias{"fp8", "fp8_block"},
    Alias{"fp8_perchannel", "fp8_channel"},
};

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

/// The group that a format's bare name stands for.
std::int32_t usual_group(Format format) {
  if (format == Format::int4_group) return 32;
  return format == Format::fp8_block ? 128 : 0;
}

/// Whether there are codes of one layout, and in one order of k.
bool agree(std::span<const MatrixSource> sources) {
  const Layout layout = sources.front().layout();
  if (layout.format == Format::bf16 || layout.format == Format::f32) return false;
  return std::ranges::all_of(sources, [&](const MatrixSource& source) {
    return source.layout() == layout && std::ranges::equal(source.order(), sources.front().order());
  });
}

/// Whether codes can stand one below the other: also of one scale, and no panel with rows of two.
bool can_be_stacked(std::span<const MatrixSource> parts) {
  if (!agree(parts)) return false;
  return parts.size() == 1 || std::ranges::all_of(parts, [&](const MatrixSource& part) {
           return part.scale() == parts.front().scale() && part.rows() % kPanelColumns == 0;
         });
}

Packing as_it_is(const MatrixSource& source) {
  return {.layout = source.layout(), .keeps_codes = true};
}

Packing from_values(const Layout& layout) {
  return {.layout = layout, .keeps_codes = false};
}

/// What holds the values of matrices that do not agree in a quantised layout.
Packing plain(std::span<const MatrixSource> sources) {
  const bool wide = std::ranges::any_of(
      sources, [](const MatrixSource& source) { return source.layout().format == Format::f32; });
  return from_values({.format = wide ? Format::f32 : Format::bf16});
}

}  // namespace

std::string layout_name(const Layout& layout) {
  const std::string_view format = format_name(layout.format);
  return layout.group == usual_group(layout.format) ? std::string(format)
                                                    : fmt::format("{}{}", format, layout.group);
}

std::string wanted_name(const std::optional<Layout>& wanted) {
  return wanted ? layout_name(*wanted) : "auto";
}

std::optional<Layout> layout_from_name(std::string_view name) {
  constexpr std::array<std::pair<Format, std::int32_t>, 3> kOtherGroups = {
      {{Format::int4_group, 64}, {Format::int4_group, 128}, {Format::fp8_block, 32}}};
  for (const auto& [format, group] : kOtherGroups) {
    const Layout layout{.format = format, .group = group};
    if (name == layout_name(layout)) return layout;
  }
  const std::optional<Format> format = format_from_name(name);
  if (!format) return std::nullopt;
  return Layout{.format = *format, .group = usual_group(*format)};
}

std::string canonical_layout_name(std::string_view spelling) {
  std::string small = in_small_letters(spelling);
  constexpr std::string_view kOfTraining = "_sft";  // in KTransformers
  if (small.ends_with(kOfTraining)) small.resize(small.size() - kOfTraining.size());
  const auto alias = std::ranges::find(kAliases, small, &Alias::spelling);
  if (alias != kAliases.end()) return std::string(alias->name);
  return layout_from_name(small) ? small : std::string(spelling);
}

std::string_view foreign_layout_remark(std::string_view spelling) {
  const std::string small = in_small_letters(spelling);
  if (small.starts_with("amxint4_1")) {
    return "; it keeps a least value beside each scale, which no format here does when it rounds; "
           "int4 and int4_group have scales alone";
  }
  if (small.ends_with("_skiplora")) {
    return "; give the name without _SkipLoRA: adapters of experts are left out by --lora-targets "
           "attention,shared,dense";
  }
  return "";
}

const std::optional<Layout>& WantedLayouts::of(WeightRole role) const noexcept {
  if (role == WeightRole::expert) return experts;
  return role == WeightRole::head ? head : dense;
}

Packing LayoutChoice::stacked(WeightRole role, std::span<const MatrixSource> parts) const {
  return choose(role, parts, can_be_stacked(parts));
}

Packing LayoutChoice::together(WeightRole role, std::span<const MatrixSource> matrices) const {
  return choose(role, matrices, agree(matrices));
}

Packing LayoutChoice::choose(WeightRole role, std::span<const MatrixSource> sources,
                             bool can_keep_codes) const {
  if (precision_ == Precision::f32) return from_values({.format = Format::f32});
  const std::optional<Layout>& wanted = wanted_.of(role);
  const Layout own = sources.front().layout();
  // A file's int4_group may have wide scales: the same format all the same.
  const bool is_wanted = !wanted || (wanted->format == own.format && wanted->group == own.group);
  if (is_wanted && can_keep_codes) return as_it_is(sources.front());
  if (wanted) return from_values(*wanted);
  return role == WeightRole::expert ? from_values({.format = Format::bf16}) : plain(sources);
}

}  // namespace moesaic
