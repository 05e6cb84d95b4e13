#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace moesaic {

/// How a model's makers want it sampled: generation_config.json, as far as it says so.
struct GenerationDefaults {
  std::optional<bool> do_sample;  // false: greedy, whatever the temperature
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};

/// Throws Error{file} for values of another type or out of range.
[[nodiscard]] GenerationDefaults parse_generation_defaults(const Json& generation_config);

/// Those of a checkpoint directory; nothing if it has no such file.
[[nodiscard]] GenerationDefaults read_generation_defaults(const std::string& directory);

}  // namespace moesaic
