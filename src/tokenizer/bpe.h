#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/regex.h"
#include "src/tokenizer/vocabulary.h"

namespace moesaic {

/// Byte-pair encoding as the `tokenizers` library does it: a piece starts as its characters, and
/// the neighbours whose merge has the lowest rank are joined until no merge applies. Immutable,
/// safe to use from several threads.
class Bpe {
 public:
  /// `model` of tokenizer.json. Throws Error{file} for another type of model, for ids out of range
  /// or given twice, and for merges of unknown tokens.
  explicit Bpe(const Json& model);

  [[nodiscard]] const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

  /// Appends the ids of one piece, which must be UTF-8, and to `spans` (if not nullptr) which bytes
  /// of it they stand for. O(n log n). Throws Error{file} if the text needs an unknown token that
  /// the vocabulary lacks.
  void append_ids(std::string_view piece, std::vector<std::int32_t>& ids,
                  std::vector<Span>* spans = nullptr) const;

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;  // of the joined token
  };
  struct Symbol;
  struct Candidate;
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const noexcept;
  };

  void read_options(const Json& model);
  void read_vocabulary(const Json& vocab);
  void read_merges(const Json& merges);
  void add_merge(std::string_view left, std::string_view right, const Json& merge);

  [[nodiscard]] const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  [[nodiscard]] std::vector<Symbol> characters_of(std::string_view piece) const;
  [[nodiscard]] bool append_bytes(std::string_view text, Span span,
                                  std::vector<Symbol>& symbols) const;
  [[nodiscard]] std::int32_t unknown_id() const;
  void merge_all(std::vector<Symbol>& symbols) const;

  std::string document_;
  Vocabulary vocabulary_;
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  std::int32_t next_rank_ = 0;
  std::vector<std::int32_t> byte_ids_;  // of "<0x00>".."<0xFF>", -1 where there is none
  std::string subword_prefix_;          // in front of every character but the first
  std::string word_suffix_;             // behind the last character
  std::optional<std::string> unknown_token_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace moesaic
