#include "src/checkpoint/rope_config.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "src/checkpoint/config_reader.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"default", "linear", "dynamic",
                                                    "yarn",    "llama3", "longrope"};

/// Where the fields of one config stand: transformers 5 has all of them in `rope_parameters`,
/// transformers 4 the scaling in `rope_scaling` and the rest beside it.
struct Source {
  ConfigReader outer;
  ConfigReader scaling;
  bool is_v5;
};

Source find_source(const Json& config, const RopeContext& context) {
  const ConfigReader outer(config);
  if (const auto parameters = outer.find("rope_parameters")) {
    const auto scaling = outer.find("rope_scaling");
    require(!scaling || scaling->size() == 0, ErrorKind::file,
            "{}: rope_scaling and rope_parameters are both there, and versions of transformers "
            "take different ones: leave one out",
            config.where());
    parameters->for_each([](const std::string&, const Json& value) {
      require(!value.is_object(), ErrorKind::file,
              "{}: rotary embeddings that differ by layer are not supported", value.where());
    });
    return {outer, ConfigReader(*parameters), true};
  }
  if (const auto scaling = outer.find("rope_scaling")) {
    return {outer, ConfigReader(*scaling), false};
  }
  require(!outer.is_null("rope_scaling") || context.default_scaling == kNoScaling, ErrorKind::file,
          "{}: rope_scaling: null is no scaling to transformers 4 and the family's usual one to 5: "
          "leave it out, or give it a rope_type",
          config.where());
  return {outer, ConfigReader(Json::parse(std::string(context.default_scaling), config.where())),
          false};
}

RopeType read_type(const Source& source) {
  const ConfigReader& scaling = source.scaling;
  auto name = scaling.find("rope_type");
  const auto old_name = scaling.find("type");
  require(!name || !old_name || name->as_string_view() == old_name->as_string_view(),
          ErrorKind::file, "{}: type \"{}\" beside rope_type \"{}\": leave one out",
          scaling.json().where(), old_name ? old_name->as_string_view() : "",
          name ? name->as_string_view() : "");
  if (!name) name = old_name;
  if (!name && source.is_v5) return RopeType::plain;
  require(name.has_value(), ErrorKind::file, "{}: field \"rope_type\" is missing",
          scaling.json().where());
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name->as_string_view()) return static_cast<RopeType>(i);
  }
  fail(ErrorKind::file,
       "{}: rope type \"{}\" is not supported; these are: default, linear, dynamic, yarn, llama3, "
       "longrope",
       name->where(), name->as_string_view());
}

/// The context before scaling of yarn and llama3. Transformers 5 moves a field beside
/// `rope_parameters` into it, over what stands there.
std::int64_t read_original_max_position(const Source& source, const RopeContext& context) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  if (source.is_v5) {
    if (const auto outer = source.outer.find_int(kKey, kPositions)) return *outer;
  }
  return source.scaling.int_or(kKey, context.max_position_embeddings, kPositions);
}

double ratio(std::int64_t max_position, std::int64_t original) {
  return static_cast<double>(max_position) / static_cast<double>(original);
}

double number_or_zero(const ConfigReader& reader, std::string_view key) {
  const auto value = reader.find(key);
  return value ? value->as_double() : 0.0;
}

double yarn_mscale(double factor, double mscale) noexcept {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// `_compute_yarn_parameters` in transformers/modeling_rope_utils.py.
void read_yarn(const Source& source, const RopeContext& context, RopeConfig& rope) {
  const ConfigReader& scaling = source.scaling;
  rope.original_max_position = read_original_max_position(source, context);
  rope.factor = source.is_v5 ? scaling.positive_or("factor", ratio(context.max_position_embeddings,
                                                                   rope.original_max_position))
                             : scaling.required_positive("factor");
  rope.beta_fast = scaling.positive_or("beta_fast", 32.0);
  rope.beta_slow = scaling.positive_or("beta_slow", 1.0);
  rope.truncate = !scaling.is_null("truncate") && scaling.flag_or("truncate", true);

  const double mscale = number_or_zero(scaling, "mscale");
  const bool both = mscale != 0 && rope.mscale_all_dim != 0;
  rope.attention_factor = scaling.positive_or(
      "attention_factor", both ? yarn_mscale(rope.factor, mscale) / attention_mscale(rope)
                               : yarn_mscale(rope.factor, 1));
}

/// `_compute_longrope_parameters`. Transformers 4 takes the original context only from beside
/// `rope_scaling`, and lets it overrule the factor.
void read_longrope(const Source& source, const RopeContext& context, RopeConfig& rope) {
  const ConfigReader& scaling = source.scaling;
  auto factor = scaling.find_positive("factor");
  if (source.is_v5) {
    rope.original_max_position = read_original_max_position(source, context);
    if (!factor) factor = ratio(context.max_position_embeddings, rope.original_max_position);
  } else if (const auto original =
                 source.outer.find_int("original_max_position_embeddings", kPositions)) {
    rope.original_max_position = *original;
    factor = ratio(context.max_position_embeddings, *original);
  } else {
    rope.original_max_position = context.max_position_embeddings;
  }
  const auto attention_factor = scaling.find_positive("attention_factor");
  require(factor.has_value() || attention_factor.has_value(), ErrorKind::file,
          "{}: longrope needs \"factor\", \"attention_factor\" or the model's "
          "\"original_max_position_embeddings\"",
          scaling.json().where());
  rope.factor = factor.value_or(1.0);
  require(attention_factor || rope.factor <= 1 || rope.original_max_position > 1, ErrorKind::file,
          "{}: longrope of factor {} needs an original context of more than 1 token, or an "
          "\"attention_factor\"",
          scaling.json().where(), rope.factor);
  const double original = static_cast<double>(rope.original_max_position);
  rope.attention_factor = attention_factor.value_or(
      rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original)));
  rope.short_factor = scaling.required_positives("short_factor", rope.rotary_dim / 2);
  rope.long_factor = scaling.required_positives("long_factor", rope.rotary_dim / 2);
}

void read_llama3(const Source& source, const RopeContext& context, RopeConfig& rope) {
  const ConfigReader& scaling = source.scaling;
  rope.factor = scaling.required_positive("factor");
  rope.low_freq_factor = scaling.required_positive("low_freq_factor");
  rope.high_freq_factor = scaling.required_positive("high_freq_factor");
  rope.original_max_position = read_original_max_position(source, context);
  require(rope.low_freq_factor < rope.high_freq_factor, ErrorKind::file,
          "{}: low_freq_factor {} is not below high_freq_factor {}", scaling.json().where(),
          rope.low_freq_factor, rope.high_freq_factor);
}

void read_base(const Source& source, const RopeContext& context, RopeConfig& rope) {
  const auto number = [&](std::string_view key, double otherwise) {
    if (source.is_v5) {
      if (const auto value = source.scaling.find_positive(key)) return *value;
    }
    return source.outer.positive_or(key, otherwise);
  };
  rope.theta = number("rope_theta", context.default_theta);
  require(rope.theta > 1, ErrorKind::file, "{}: rope_theta: expected a number above 1, found {}",
          source.outer.json().where(), rope.theta);
  constexpr std::string_view kPartial = "partial_rotary_factor";
  const bool is_null = source.outer.is_null(kPartial) || source.scaling.is_null(kPartial);
  require(
      !is_null || context.default_partial_factor == 1, ErrorKind::file,
      "{}: {}: null: versions of transformers differ in what they rotate: leave it out, or give "
      "a number",
      source.outer.json().where(), kPartial);
  const bool is_there = source.outer.find(kPartial) || source.scaling.find(kPartial);
  rope.partial_rotary_factor = number(kPartial, context.default_partial_factor);
  require(rope.partial_rotary_factor <= 1, ErrorKind::file,
          "{}: partial_rotary_factor: expected at most 1, found {}", source.outer.json().where(),
          rope.partial_rotary_factor);
  rope.rotary_dim =
      static_cast<std::int64_t>(static_cast<double>(context.head_dim) * rope.partial_rotary_factor);
  require(
      rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0, ErrorKind::file,
      "{}: by {} {} of the {} dimensions of a head are rotated; an even number above 0 is needed",
      source.outer.json().where(), is_there ? kPartial : context.partial_key, rope.rotary_dim,
      context.head_dim);
}

}  // namespace

std::string_view rope_type_name(RopeType type) noexcept {
  return kNames[static_cast<std::size_t>(type)];
}

double attention_mscale(const RopeConfig& rope) noexcept {
  return yarn_mscale(rope.factor, rope.mscale_all_dim);
}

RopeConfig read_rope_config(const Json& config, const RopeContext& context) {
  const Source source = find_source(config, context);
  RopeConfig rope;
  rope.type = read_type(source);
  read_base(source, context, rope);
  rope.mscale_all_dim = number_or_zero(source.scaling, "mscale_all_dim");
  switch (rope.type) {
    case RopeType::plain:
      break;
    case RopeType::linear:
      rope.factor = source.scaling.required_positive("factor");
      break;
    case RopeType::dynamic:
      rope.factor = source.scaling.required_positive("factor");
      rope.original_max_position = context.max_position_embeddings;
      require(rope.rotary_dim > 2, ErrorKind::file,
              "{}: dynamic rope scaling needs more than 2 rotated dimensions", config.where());
      break;
    case RopeType::yarn:
      read_yarn(source, context, rope);
      break;
    case RopeType::llama3:
      read_llama3(source, context, rope);
      break;
    case RopeType::longrope:
      read_longrope(source, context, rope);
      break;
  }
  return rope;
}

}  // namespace moesaic
