#include "src/checkpoint/config_reader.h"

#include <cmath>

#include "base/error.h"

namespace moesaic {
namespace {

std::int64_t checked_int(const Json& value, IntRange range) {
  const std::int64_t found = value.as_int();
  require(found >= range.min && found <= range.max, ErrorKind::file,
          "{}: expected {} to {}, found {}", value.where(), range.min, range.max, found);
  return found;
}

double checked_positive(const Json& value) {
  const double found = value.as_double();
  require(std::isfinite(found) && found > 0, ErrorKind::file,
          "{}: expected a number above 0, found {}", value.where(), found);
  return found;
}

}  // namespace

bool ConfigReader::is_null(std::string_view key) const {
  bool null = false;
  config_.for_each([&](const std::string& name, const Json& value) {
    if (name == key) null = value.is_null();
  });
  return null;
}

std::int64_t ConfigReader::required_int(std::string_view key, IntRange range) const {
  return checked_int(config_.at(key), range);
}

std::optional<std::int64_t> ConfigReader::find_int(std::string_view key, IntRange range) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return checked_int(*value, range);
}

std::int64_t ConfigReader::int_or(std::string_view key, std::int64_t otherwise,
                                  IntRange range) const {
  return find_int(key, range).value_or(otherwise);
}

double ConfigReader::required_positive(std::string_view key) const {
  return checked_positive(config_.at(key));
}

std::optional<double> ConfigReader::find_positive(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return checked_positive(*value);
}

double ConfigReader::positive_or(std::string_view key, double otherwise) const {
  return find_positive(key).value_or(otherwise);
}

bool ConfigReader::flag_or(std::string_view key, bool otherwise) const {
  const auto value = find(key);
  return value ? value->as_bool() : otherwise;
}

std::string ConfigReader::string_or(std::string_view key, std::string_view otherwise) const {
  const auto value = find(key);
  return value ? value->as_string() : std::string(otherwise);
}

std::vector<double> ConfigReader::required_positives(std::string_view key,
                                                     std::int64_t count) const {
  const Json array = config_.at(key);
  require(array.is_array() && array.size() == count, ErrorKind::file,
          "{}: expected an array of {} numbers, found {}", array.where(), count,
          array.is_array() ? std::to_string(array.size()) + " elements" : "no array");
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(checked_positive(array.at(i)));
  return values;
}

}  // namespace moesaic
