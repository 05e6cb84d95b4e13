#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "src/tokenizer/regex.h"

namespace moesaic {

/// Helpers for the parts of tokenizer.json, each an object with a "type".

/// Throws Error{file}: the "type" of `part` is none of `supported`.
[[noreturn]] void unsupported_type(const Json& part, std::string_view supported);

/// Member `key` of `part`, or `fallback` where it is absent or null.
[[nodiscard]] bool bool_or(const Json& part, std::string_view key, bool fallback);

/// The "pattern" of `part`: {"Regex": ...} or {"String": ...}.
[[nodiscard]] Regex pattern_of(const Json& part);

/// A string of exactly one character.
[[nodiscard]] char32_t single_character(const Json& text);

/// Token ids are below this; the largest vocabularies in use have a quarter of a million.
inline constexpr std::int32_t kMaxTokenIds = 1 << 22;
/// A token id. Throws Error{file} if it is out of range.
[[nodiscard]] std::int32_t token_id_of(const Json& number);

/// How deep the Sequences of a part may nest.
inline constexpr int kMaxSequenceDepth = 16;
/// Throws Error{file} if `depth` is beyond it.
void check_sequence_depth(const Json& part, int depth);

}  // namespace moesaic
