#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/regex.h"

namespace moesaic {

/// A text on its way through the normalizer.
struct NormalizedText {
  std::string text;
  /// Whether `text` still begins where the input did, so that a Metaspace with the prepend scheme
  /// "first" treats it as the beginning.
  bool at_start = true;
  /// Where every byte of `text` comes from in the input; kept up only if `aligned`.
  std::vector<Span> origins = {};
  bool aligned = false;
  /// No step may make it longer.
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
};

/// A character that takes the place of what stands next in a text: of one character and `replaces`
/// - 1 more, or of none (it is inserted, and comes from where the character before it does).
struct NewCharacter {
  char32_t code_point = 0;
  int replaces = 1;
};
/// Replaces the whole text, which must be aligned.
void rewrite(NormalizedText& text, const std::vector<NewCharacter>& characters);

/// The `normalizer` of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and
/// Sequences of them. Immutable, safe to use from several threads.
class Normalizer {
 public:
  /// Changes nothing.
  Normalizer() = default;
  /// Throws Error{file} for another type or a member that is wrong.
  explicit Normalizer(const Json& part) { add(part, 0); }

  /// Throws Error{file} if the text gets absurdly longer.
  void apply(NormalizedText& text) const;

 private:
  using Step = std::function<void(NormalizedText&)>;
  void add(const Json& part, int depth);
  std::vector<Step> steps_;
};

}  // namespace moesaic
