#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/regex.h"

namespace moesaic {

/// A part of the text that the model sees as one word.
struct Piece {
  std::string_view text;
  bool at_start = false;          ///< begins where the input text began
  const Span* origins = nullptr;  ///< of every byte in the input; nullptr if nobody asks
};

/// The text that takes the place of some pieces.
class PieceWriter {
 public:
  /// Appends `bytes`, which stand for the byte `at` of the piece.
  void append(std::string_view bytes, const Piece& piece, std::size_t at);
  /// Appends the piece as it is.
  void append(const Piece& piece);

 private:
  friend class PieceList;
  std::string text_;
  std::vector<Span> origins_;  // of every byte, where the pieces have them
};

/// The pieces of a text, with the changed texts that they view.
class PieceList {
 public:
  /// The text of `whole` must outlive the list, and its origins.
  explicit PieceList(const Piece& whole);

  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  /// Replaces every piece by the non-empty parts that `spans` names.
  void split(const std::function<std::vector<Span>(std::string_view text)>& spans);
  /// Replaces the text of every piece by what `append` appends to `out`. Throws Error{file} if all
  /// together get absurdly longer than the whole was.
  void rewrite(const std::function<void(const Piece& piece, PieceWriter& out)>& append);

 private:
  std::size_t most_bytes_;
  std::vector<Piece> pieces_;
  std::deque<PieceWriter> texts_;
};

/// The `pre_tokenizer` of tokenizer.json: Split, ByteLevel, Metaspace, Digits, Punctuation,
/// Whitespace, WhitespaceSplit and Sequences of them. Immutable, safe to use from several threads.
class PreTokenizer {
 public:
  /// Leaves a text whole.
  PreTokenizer() = default;
  /// Throws Error{file} for another type or a member that is wrong.
  explicit PreTokenizer(const Json& part) { add(part, 0); }

  void apply(PieceList& pieces) const;

 private:
  using Step = std::function<void(PieceList&)>;
  void add(const Json& part, int depth);
  void add_metaspace(const Json& part);
  void add_byte_level(const Json& part);
  std::vector<Step> steps_;
};

}  // namespace moesaic
