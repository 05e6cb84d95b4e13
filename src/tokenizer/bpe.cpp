#include "src/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "src/tokenizer/json_parts.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

constexpr std::int32_t kNoToken = -1;

}  // namespace

/// A token of a piece in the making; merged ones form a list.
struct Bpe::Symbol {
  std::int32_t id = 0;
  Span span;  // of the piece
  std::int32_t previous = -1;
  std::int32_t next = -1;
  bool merged_away = false;
};

/// A merge of the symbol at `position` with its next one, to be tried.
struct Bpe::Candidate {
  Merge merge;
  std::int32_t position = 0;

  /// For a queue with the lowest rank on top, and the leftmost of equal rank.
  bool operator<(const Candidate& other) const {
    return merge.rank != other.merge.rank ? merge.rank > other.merge.rank
                                          : position > other.position;
  }
};

std::size_t Bpe::PairHash::operator()(std::uint64_t pair) const noexcept {
  // The finalizer of splitmix64: ids of neighbours are small and regular.
  pair = (pair ^ (pair >> 30)) * 0xBF58476D1CE4E5B9U;
  pair = (pair ^ (pair >> 27)) * 0x94D049BB133111EBU;
  return pair ^ (pair >> 31);
}

namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

std::string string_or_empty(const Json& model, std::string_view key) {
  const auto value = model.find(key);
  return value ? value->as_string() : "";
}

}  // namespace

Bpe::Bpe(const Json& model) : document_(model.where()) {
  read_options(model);
  read_vocabulary(model.at("vocab"));
  read_merges(model.at("merges"));
  for (int byte = 0; byte_fallback_ && byte < 256; ++byte) {
    byte_ids_.push_back(vocabulary_.id(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  }
}

void Bpe::read_options(const Json& model) {
  // Files from before the type was written are BPE where they have merges.
  if (const auto type = model.find("type")) {
    require(type->as_string() == "BPE", ErrorKind::file, "{} is \"{}\"; only BPE is supported",
            type->where(), type->as_string());
  }
  const auto dropout = model.find("dropout");
  require(!dropout || dropout->as_double() == 0.0, ErrorKind::file,
          "{}.dropout is set; a random encoding is not supported", model.where());
  subword_prefix_ = string_or_empty(model, "continuing_subword_prefix");
  word_suffix_ = string_or_empty(model, "end_of_word_suffix");
  if (const auto unknown = model.find("unk_token")) unknown_token_ = unknown->as_string();
  byte_fallback_ = bool_or(model, "byte_fallback", false);
  fuse_unknown_ = bool_or(model, "fuse_unk", false);
  ignore_merges_ = bool_or(model, "ignore_merges", false);
}

void Bpe::read_vocabulary(const Json& vocab) {
  require(vocab.is_object(), ErrorKind::file, "{}: expected an object of tokens and ids",
          vocab.where());
  vocab.for_each([&](const std::string& token, const Json& id) {
    vocabulary_.add(token, token_id_of(id), vocab);
  });
}

void Bpe::read_merges(const Json& merges) {
  require(merges.is_array(), ErrorKind::file, "{}: expected an array", merges.where());
  merges_.reserve(static_cast<std::size_t>(merges.size()));
  merges.for_each([&](const std::string&, const Json& merge) {
    if (merge.is_array()) {
      if (merge.size() != 2) {
        fail(ErrorKind::file, "{}: expected two tokens, found {}", merge.where(), merge.size());
      }
      add_merge(merge.at(std::int64_t{0}).as_string_view(), merge.at(1).as_string_view(), merge);
      return;
    }
    const std::string_view line = merge.as_string_view();
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorKind::file, "{}: expected two tokens and a space, found \"{}\"", merge.where(),
           line);
    }
    add_merge(line.substr(0, space), line.substr(space + 1), merge);
  });
}

void Bpe::add_merge(std::string_view left, std::string_view right, const Json& merge) {
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary_.id(token);
    if (!id) {
      fail(ErrorKind::file, "{}: token \"{}\" is not in the vocabulary", merge.where(), token);
    }
    return *id;
  };
  if (right.size() < subword_prefix_.size()) {
    fail(ErrorKind::file, "{}: \"{}\" is shorter than the continuing_subword_prefix", merge.where(),
         right);
  }
  const std::string joined = std::string(left) + std::string(right.substr(subword_prefix_.size()));
  const std::int32_t left_id = id_of(left);  // one by one: the first that lacks is told
  const std::int32_t right_id = id_of(right);
  // Of two merges of the same pair the later one counts, as in the library.
  merges_.insert_or_assign(pair_key(left_id, right_id), Merge{next_rank_++, id_of(joined)});
}

void Bpe::append_ids(std::string_view piece, std::vector<std::int32_t>& ids,
                     std::vector<Span>* spans) const {
  if (ignore_merges_) {
    if (const auto whole = vocabulary_.id(piece)) {
      ids.push_back(*whole);
      if (spans != nullptr) spans->push_back({0, piece.size()});
      return;
    }
  }
  std::vector<Symbol> symbols = characters_of(piece);
  merge_all(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.merged_away) continue;
    ids.push_back(symbol.id);
    if (spans != nullptr) spans->push_back(symbol.span);
  }
}

std::vector<Bpe::Symbol> Bpe::characters_of(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  Symbol unknown{kNoToken, {}};  // not yet appended, since others may fuse with it
  const auto append_unknown = [&] {
    if (unknown.id != kNoToken) symbols.push_back(unknown);
    unknown.id = kNoToken;
  };
  std::string affixed;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t begin = at;
    at += utf8_length(piece[at]);
    std::string_view character = piece.substr(begin, at - begin);
    if (!subword_prefix_.empty() || !word_suffix_.empty()) {
      affixed = (begin > 0 ? subword_prefix_ : "") + std::string(character) +
                (at == piece.size() ? word_suffix_ : "");
      character = affixed;
    }
    if (const auto id = vocabulary_.id(character)) {
      append_unknown();
      symbols.push_back({*id, {begin, at}});
    } else if (byte_fallback_ && append_bytes(character, {begin, at}, symbols)) {
      // A pending unknown token stays behind the bytes, as it does in the library.
    } else if (unknown_token_) {
      if (!fuse_unknown_) append_unknown();
      unknown = {unknown_id(), {unknown.id == kNoToken ? begin : unknown.span.begin, at}};
    }
  }
  append_unknown();
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<std::int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int32_t>(i + 1) : -1;
  }
  return symbols;
}

bool Bpe::append_bytes(std::string_view text, Span span, std::vector<Symbol>& symbols) const {
  const std::size_t before = symbols.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(text[i])];
    if (id < 0) {
      symbols.resize(before);
      return false;
    }
    // With affixes there may be more bytes than the piece has; those stand for its last one.
    const std::size_t at = std::min(span.begin + i, span.end - 1);
    symbols.push_back({id, {at, at + 1}});
  }
  return true;
}

std::int32_t Bpe::unknown_id() const {
  const auto id = vocabulary_.id(*unknown_token_);
  require(id.has_value(), ErrorKind::file,
          "{}: the text needs unk_token \"{}\", which is not in the vocabulary", document_,
          *unknown_token_);
  return *id;
}

const Bpe::Merge* Bpe::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::merge_all(std::vector<Symbol>& symbols) const {
  const auto symbol = [&](std::int32_t at) -> Symbol& {
    return symbols[static_cast<std::size_t>(at)];
  };
  std::vector<Candidate> first;
  for (std::int32_t at = 0; at + 1 < std::ssize(symbols); ++at) {
    if (const Merge* merge = merge_of(symbol(at).id, symbol(at + 1).id)) {
      first.push_back({*merge, at});
    }
  }
  std::priority_queue<Candidate> queue({}, std::move(first));
  const auto try_at = [&](std::int32_t at) {
    if (at < 0 || symbol(at).next < 0) return;
    if (const Merge* merge = merge_of(symbol(at).id, symbol(symbol(at).next).id)) {
      queue.push({*merge, at});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbol(top.position);
    if (left.merged_away || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    const Merge* current = merge_of(left.id, right.id);
    if (current == nullptr || current->id != top.merge.id) continue;  // outdated
    left.id = top.merge.id;
    left.next = right.next;
    left.span = {std::min(left.span.begin, right.span.begin),
                 std::max(left.span.end, right.span.end)};
    right.merged_away = true;
    if (left.next >= 0) symbol(left.next).previous = top.position;
    try_at(left.previous);
    try_at(top.position);
  }
}

}  // namespace moesaic
