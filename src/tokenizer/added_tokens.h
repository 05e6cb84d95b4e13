#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/regex.h"

namespace moesaic {

/// An entry of `added_tokens` in tokenizer.json: a text that is found before the model sees
/// anything.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character stands next to it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space behind it
  bool normalized = false;   ///< is looked for in the normalized text
  bool special = false;      ///< may be left out when decoding
};

/// One of a text and flags, but for its id. Throws Error{file} for members that are wrong.
[[nodiscard]] AddedToken read_added_token(const Json& entry, bool special);
/// Reads the array. Throws Error{file} for members that are wrong or missing.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const Json& array);

/// A part of a text: an added token (with the white space that it takes), or text between them.
struct Segment {
  std::string_view text;
  std::optional<std::int32_t> id;
};

/// Finds added tokens: the leftmost first, and the longest of those. Immutable, safe to use from
/// several threads.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  /// `content` is what is looked for, which for normalized tokens is not token.content. Empty
  /// contents are never found.
  void add(const AddedToken& token, std::string_view content);
  /// The segments of `text`, which must be UTF-8; they view it.
  [[nodiscard]] std::vector<Segment> split(std::string_view text) const;

 private:
  struct Found {
    std::size_t end = 0;
    const AddedToken* token = nullptr;
  };
  [[nodiscard]] Found longest_at(std::string_view text, std::size_t begin) const;
  [[nodiscard]] bool touches_word(std::string_view text, Span match) const;

  /// A node of the byte trie; children are found by (node, byte) in `edges_`.
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::vector<std::int32_t> token_of_node_{-1};
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};
  Regex word_;
};

}  // namespace moesaic
