#include "src/tokenizer/json_parts.h"

#include "base/error.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

void unsupported_type(const Json& part, std::string_view supported) {
  const Json type = part.at("type");
  fail(ErrorKind::file, "{} is \"{}\"; supported: {}", type.where(), type.as_string(), supported);
}

bool bool_or(const Json& part, std::string_view key, bool fallback) {
  const auto value = part.find(key);
  return value ? value->as_bool() : fallback;
}

Regex pattern_of(const Json& part) {
  const Json pattern = part.at("pattern");
  if (const auto regex = pattern.find("Regex")) {
    return Regex::compile(regex->as_string_view(), regex->where());
  }
  const auto text = pattern.find("String");
  require(text.has_value(), ErrorKind::file,
          "{}: expected {{\"Regex\": ...}} or {{\"String\": ...}}", pattern.where());
  return Regex::literal(text->as_string_view());
}

char32_t single_character(const Json& text) {
  const std::string_view characters = text.as_string_view();
  std::size_t at = 0;
  const char32_t character = characters.empty() ? 0 : next_code_point(characters, at);
  require(at != 0 && at == characters.size(), ErrorKind::file,
          "{}: expected one character, found \"{}\"", text.where(), characters);
  return character;
}

std::int32_t token_id_of(const Json& number) {
  const std::int64_t id = number.as_int();
  if (id < 0 || id >= kMaxTokenIds) {
    fail(ErrorKind::file, "{}: {} is not a token id (0 to {})", number.where(), id,
         kMaxTokenIds - 1);
  }
  return static_cast<std::int32_t>(id);
}

void check_sequence_depth(const Json& part, int depth) {
  require(depth <= kMaxSequenceDepth, ErrorKind::file, "{}: Sequences nested deeper than {}",
          part.where(), kMaxSequenceDepth);
}

}  // namespace moesaic
