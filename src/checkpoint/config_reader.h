#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// Inclusive bounds of an integer field.
struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

// Bounds on sizes of a model, far above any, under which no product of those that make up a tensor
// exceeds 63 bits.
inline constexpr IntRange kWidths = {1, std::int64_t{1} << 20};     ///< of activations
inline constexpr IntRange kPositions = {1, std::int64_t{1} << 40};  ///< of a context

/// Reads the fields of a config.json with bounds and defaults. Null counts as absent. Whatever does
/// not fit throws Error{file} naming file, field, what was expected and what was found.
class ConfigReader {
 public:
  explicit ConfigReader(Json config) : config_(std::move(config)) {}

  [[nodiscard]] const Json& json() const noexcept { return config_; }
  [[nodiscard]] std::optional<Json> find(std::string_view key) const { return config_.find(key); }
  /// Whether the field is there and null, which some fields tell from absent.
  [[nodiscard]] bool is_null(std::string_view key) const;

  [[nodiscard]] std::int64_t required_int(std::string_view key, IntRange range) const;
  [[nodiscard]] std::optional<std::int64_t> find_int(std::string_view key, IntRange range) const;
  [[nodiscard]] std::int64_t int_or(std::string_view key, std::int64_t otherwise,
                                    IntRange range) const;

  /// Numbers are finite and, unless said otherwise, above zero.
  [[nodiscard]] double required_positive(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_positive(std::string_view key) const;
  [[nodiscard]] double positive_or(std::string_view key, double otherwise) const;

  [[nodiscard]] bool flag_or(std::string_view key, bool otherwise) const;
  [[nodiscard]] std::string string_or(std::string_view key, std::string_view otherwise) const;
  /// An array of exactly `count` positive numbers; throws if it is absent.
  [[nodiscard]] std::vector<double> required_positives(std::string_view key,
                                                       std::int64_t count) const;

 private:
  Json config_;
};

}  // namespace moesaic
