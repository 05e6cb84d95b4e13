#include "src/generate/generation_defaults.h"

#include <filesystem>

#include "base/error.h"
#include "src/generate/sampling_options.h"

namespace moesaic {
namespace {

std::optional<double> find_number(const Json& object, std::string_view key) {
  const auto value = object.find(key);
  return value ? std::optional(value->as_double()) : std::nullopt;
}

void check_range(const GenerationDefaults& defaults, const Json& config) {
  const SamplingOptions standard;
  try {
    check_sampling(
        {.temperature = defaults.temperature.value_or(standard.temperature),
         .top_k = defaults.top_k.value_or(standard.top_k),
         .top_p = defaults.top_p.value_or(standard.top_p),
         .min_p = defaults.min_p.value_or(standard.min_p),
         .repetition_penalty = defaults.repetition_penalty.value_or(standard.repetition_penalty)},
        0);
  } catch (const Error& error) {
    fail(ErrorKind::file, "{}: {}", config.where(), error.what());
  }
}

}  // namespace

GenerationDefaults parse_generation_defaults(const Json& generation_config) {
  GenerationDefaults defaults;
  if (const auto value = generation_config.find("do_sample")) defaults.do_sample = value->as_bool();
  if (const auto value = generation_config.find("top_k")) defaults.top_k = value->as_int();
  defaults.temperature = find_number(generation_config, "temperature");
  defaults.top_p = find_number(generation_config, "top_p");
  defaults.min_p = find_number(generation_config, "min_p");
  defaults.repetition_penalty = find_number(generation_config, "repetition_penalty");
  check_range(defaults, generation_config);
  return defaults;
}

GenerationDefaults read_generation_defaults(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return parse_generation_defaults(Json::read_file(path.string()));
}

}  // namespace moesaic
