#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moesaic {

/// A read-only JSON value. Every accessor that cannot give what was asked throws Error{file} naming
/// the document and the path of the value, what was expected and what was found.
class Json {
 public:
  /// Parses `text`; `document` (a file name) stands in messages. Duplicate keys are an error, since
  /// two readers may take different ones.
  static Json parse(std::string_view text, std::string document);
  /// Reads and parses a file of at most `max_bytes`.
  static Json read_file(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 30);

  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_number() const;
  [[nodiscard]] bool is_integer() const;
  /// One that no int64_t holds; beyond 64 bits as_double() alone reads it.
  [[nodiscard]] bool is_long_integer() const;
  [[nodiscard]] bool is_bool() const;

  /// Member `key` of this object; absent and null are both nullopt.
  [[nodiscard]] std::optional<Json> find(std::string_view key) const;
  /// Member `key` of this object; throws if absent or null.
  [[nodiscard]] Json at(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key).has_value(); }

  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] Json at(std::int64_t index) const;
  /// Calls for each member of an object, or each element of an array (key empty), in the order of
  /// the document.
  void for_each(const std::function<void(const std::string& key, const Json& value)>& call) const;

  [[nodiscard]] std::string as_string() const;
  /// Avoids the copy of as_string; valid as long as the document lives.
  [[nodiscard]] std::string_view as_string_view() const;
  [[nodiscard]] std::int64_t as_int() const;
  /// One from `least` to `most`.
  [[nodiscard]] std::int64_t as_int(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double as_double() const;
  [[nodiscard]] bool as_bool() const;

  /// Where this value stands, such as "config.json: rope_scaling.factor".
  [[nodiscard]] std::string where() const;

 private:
  struct Document;
  struct Node;
  Json(std::shared_ptr<const Document> document, const void* value, std::string path)
      : document_(std::move(document)), value_(value), path_(std::move(path)) {}
  std::shared_ptr<const Document> document_;
  const void* value_;
  std::string path_;
};

/// Writes one JSON object, member by member, on a single line. Strings must be UTF-8; bytes that
/// are not are replaced by U+FFFD.
class JsonWriter {
 public:
  JsonWriter& field(std::string_view key, std::string_view value);
  JsonWriter& field(std::string_view key, const char* value) {
    return field(key, std::string_view(value));
  }
  JsonWriter& field(std::string_view key, std::int64_t value);
  JsonWriter& field(std::string_view key, int value) { return field(key, std::int64_t{value}); }
  JsonWriter& field(std::string_view key, double value);
  JsonWriter& field(std::string_view key, bool value);
  /// `raw` is JSON text already, such as another writer's text().
  JsonWriter& raw_field(std::string_view key, std::string_view raw);
  /// The whole object.
  [[nodiscard]] std::string text() const { return "{" + body_ + "}"; }

 private:
  void key(std::string_view name);
  std::string body_;
};

/// `value` as a JSON string with its quotes.
[[nodiscard]] std::string json_quote(std::string_view value);

/// A number that is a float for readers that tell 2.0 from 2.
[[nodiscard]] std::string json_float(double value);

/// ["a", "b"]: a JSON list of the strings of `values`.
template <typename Strings>
[[nodiscard]] std::string json_strings(const Strings& values) {
  std::string text;
  for (const std::string_view value : values) {
    if (!text.empty()) text += ", ";
    text += json_quote(value);
  }
  return "[" + text + "]";
}

}  // namespace moesaic
