#include "launch/shapes/named_shapes.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/split.h"
#include "launch/options/nearest_name.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

struct Model {
  std::string_view name;
  LayerShape layer;
};

constexpr std::array kModels = {
    Model{"deepseek-v3", {256, 7168, 2048, 8}},
    Model{"qwen3-30b", {128, 2048, 768, 8}},
    Model{"mixtral", {8, 4096, 14336, 2}},
    Model{"granite", {32, 1024, 512, 8}},
};

constexpr std::int64_t kMostOfAll = std::int64_t{1} << 20;  // no number is larger

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool valid = error == std::errc() && stop == end && value >= 1 && value <= kMostOfAll;
  return valid ? std::optional(value) : std::nullopt;
}

const Model* find_model(std::string_view name) {
  const auto* found = std::ranges::find(kModels, name, &Model::name);
  return found == kModels.end() ? nullptr : found;
}

/// "nor one of ..." with what comes nearest.
std::string nor_model(std::string_view item) {
  std::vector<std::string_view> names;
  for (const Model& model : kModels) names.push_back(model.name);
  return fmt::format("nor one of {}{}", fmt::join(names, ", "), did_you_mean(item, names));
}

MatrixShape parse_shape(std::string_view item) {
  const std::size_t cross = item.find('x');
  std::optional<std::int64_t> columns;
  std::optional<std::int64_t> depth;
  if (cross != std::string_view::npos) {
    columns = parse_count(item.substr(0, cross));
    depth = parse_count(item.substr(cross + 1));
  }
  require(columns && depth, ErrorKind::usage,
          "--shapes: \"{}\" is neither NxK, such as 768x2048, {}", item, nor_model(item));
  return {.columns = *columns, .depth = *depth};
}

/// Four numbers: experts, hidden, intermediate, experts a token.
std::optional<LayerShape> layer_of(std::span<const std::string_view> items) {
  std::array<std::int64_t, 4> numbers{};
  if (items.size() != numbers.size()) return std::nullopt;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = parse_count(items[i]);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  return LayerShape{numbers[0], numbers[1], numbers[2], numbers[3]};
}

}  // namespace

std::string MatrixShape::name() const {
  return fmt::format("{}x{}", columns, depth);
}

std::string LayerShape::name() const {
  return fmt::format("{},{},{},{}", experts, hidden, intermediate, topk);
}

std::vector<MatrixShape> parse_shapes(std::string_view list) {
  std::vector<MatrixShape> shapes;
  const auto add = [&](const MatrixShape& shape) {
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  };
  for (const std::string_view item : split_list(list)) {
    if (const Model* model = find_model(item)) {
      add({.columns = model->layer.intermediate, .depth = model->layer.hidden});
      add({.columns = model->layer.hidden, .depth = model->layer.intermediate});
    } else {
      add(parse_shape(item));
    }
  }
  return shapes;
}

std::vector<Layout> parse_formats(std::string_view list) {
  std::vector<Layout> layouts;
  for (const std::string_view item : split_list(list)) {
    if (item == "all") {
      for (const std::string_view name : kLayoutNames) layouts.push_back(*layout_from_name(name));
      continue;
    }
    const std::optional<Layout> layout = layout_from_name(canonical_layout_name(item));
    require(layout.has_value(), ErrorKind::usage, "--formats: \"{}\" is not all, f32, {}{}", item,
            fmt::join(kLayoutNames, ", "), did_you_mean(item, kLayoutNames));
    layouts.push_back(*layout);
  }
  return layouts;
}

std::vector<LayerShape> parse_layers(std::string_view list) {
  std::vector<LayerShape> layers;
  const std::vector<std::string_view> items = split_list(list);
  for (std::size_t i = 0; i < items.size();) {
    if (const Model* model = find_model(items[i])) {
      layers.push_back(model->layer);
      ++i;
      continue;
    }
    const bool is_joined = items[i].find('x') != std::string_view::npos;
    const std::size_t count = is_joined ? 1 : std::min<std::size_t>(4, items.size() - i);
    const auto layer = is_joined ? layer_of(split_list(items[i], 'x'))
                                 : layer_of(std::span(items).subspan(i, count));
    require(layer.has_value(), ErrorKind::usage,
            "--layer: \"{}\" is neither four numbers ExHxIxK or E,H,I,K (experts, hidden, "
            "intermediate, experts a token), {}",
            list, nor_model(items[i]));
    require_runnable(*layer, "--layer");
    layers.push_back(*layer);
    i += count;
  }
  return layers;
}

LayerShape parse_layer_shape(std::string_view text, std::int64_t experts) {
  LayerShape shape;
  if (const Model* model = find_model(text)) {
    shape = model->layer;
  } else {
    const char between = text.find('x') != std::string_view::npos ? 'x' : ',';
    const auto found = layer_of(split_list(text, between));
    require(found.has_value(), ErrorKind::usage,
            "--shape: \"{}\" is neither four numbers ExHxIxK or E,H,I,K (experts, hidden, "
            "intermediate, experts a token), {}",
            text, nor_model(text));
    shape = *found;
  }
  if (experts > 0) shape.experts = experts;
  require(shape.topk <= shape.experts, ErrorKind::usage,
          "--shape {}: a token needs no more experts than there are", shape.name());
  return shape;
}

void require_runnable(const LayerShape& layer, std::string_view option) {
  require(layer.topk <= layer.experts && layer.experts <= layer.hidden, ErrorKind::usage,
          "{} {}: a token needs no more experts than there are, and the benchmark no more experts "
          "than elements of a token",
          option, layer.name());
}

}  // namespace moesaic
