#include "src/tokenizer/pre_tokenizer.h"

#include <utility>

#include "base/error.h"
#include "src/tokenizer/byte_level.h"
#include "src/tokenizer/growth.h"
#include "src/tokenizer/json_parts.h"
#include "src/tokenizer/metaspace.h"
#include "src/tokenizer/regex_syntax.h"
#include "src/tokenizer/split.h"
#include "src/tokenizer/unicode.h"

namespace moesaic {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string word_or_symbols() {
  const std::string word(kRustWordMembers);
  return "[" + word + "]+|[^" + word + R"(\s]+)";
}

}  // namespace

void PieceWriter::append(std::string_view bytes, const Piece& piece, std::size_t at) {
  text_ += bytes;
  if (piece.origins != nullptr) origins_.insert(origins_.end(), bytes.size(), piece.origins[at]);
}

void PieceWriter::append(const Piece& piece) {
  text_ += piece.text;
  if (piece.origins == nullptr) return;
  origins_.insert(origins_.end(), piece.origins, piece.origins + piece.text.size());
}

PieceList::PieceList(const Piece& whole) : most_bytes_(most_growth(whole.text.size())) {
  if (!whole.text.empty()) pieces_.push_back(whole);
}

void PieceList::split(const std::function<std::vector<Span>(std::string_view)>& spans) {
  std::vector<Piece> parts;
  for (const Piece& piece : pieces_) {
    for (const Span& span : spans(piece.text)) {
      if (span.size() == 0) continue;
      parts.push_back({span.of(piece.text), piece.at_start && span.begin == 0,
                       piece.origins == nullptr ? nullptr : piece.origins + span.begin});
    }
  }
  pieces_ = std::move(parts);
}

void PieceList::rewrite(const std::function<void(const Piece&, PieceWriter&)>& append) {
  PieceWriter& joined = texts_.emplace_back();
  std::vector<std::size_t> ends;
  ends.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    append(piece, joined);
    ends.push_back(joined.text_.size());
    require_growth(joined.text_.size(), most_bytes_, {"pre_tokenizer", "bytes"});
  }
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    pieces_[i].text = std::string_view(joined.text_).substr(begin, ends[i] - begin);
    if (pieces_[i].origins != nullptr) pieces_[i].origins = joined.origins_.data() + begin;
    begin = ends[i];
  }
}

void PreTokenizer::apply(PieceList& pieces) const {
  for (const Step& step : steps_) step(pieces);
}

void PreTokenizer::add(const Json& part, int depth) {
  check_sequence_depth(part, depth);
  const std::string type = part.at("type").as_string();
  const auto split_by = [&](auto find, SplitBehavior behavior, bool invert = false) {
    steps_.emplace_back([=](PieceList& pieces) {
      pieces.split(
          [&](std::string_view text) { return split_spans(text, find(text), behavior, invert); });
    });
  };
  if (type == "Sequence") {
    part.at("pretokenizers").for_each([&](const std::string&, const Json& inner) {
      add(inner, depth + 1);
    });
  } else if (type == "Split") {
    split_by([regex = pattern_of(part)](std::string_view text) { return regex.find_all(text); },
             split_behavior(part.at("behavior")), bool_or(part, "invert", false));
  } else if (type == "ByteLevel") {
    add_byte_level(part);
  } else if (type == "Metaspace") {
    add_metaspace(part);
  } else if (type == "Digits") {
    split_by([](std::string_view text) { return find_characters(text, is_numeric); },
             part.at("individual_digits").as_bool() ? SplitBehavior::isolated
                                                    : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    const auto behavior = part.find("behavior");
    split_by([](std::string_view text) { return find_characters(text, is_punctuation); },
             behavior ? split_behavior(*behavior) : SplitBehavior::isolated);
  } else if (type == "Whitespace") {
    split_by([regex = Regex::compile(word_or_symbols(), part.where())](
                 std::string_view text) { return regex.find_all(text); },
             SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    split_by([](std::string_view text) { return find_characters(text, is_white_space); },
             SplitBehavior::removed);
  } else {
    unsupported_type(part,
                     "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                     "WhitespaceSplit and Sequence");
  }
}

void PreTokenizer::add_byte_level(const Json& part) {
  if (part.at("add_prefix_space").as_bool()) {
    steps_.emplace_back([](PieceList& pieces) {
      pieces.rewrite([](const Piece& piece, PieceWriter& out) {
        if (!piece.text.starts_with(' ')) out.append(" ", piece, 0);
        out.append(piece);
      });
    });
  }
  if (bool_or(part, "use_regex", true)) {
    steps_.emplace_back([regex = Regex::compile(kGpt2Pattern, part.where())](PieceList& pieces) {
      pieces.split([&](std::string_view text) {
        return split_spans(text, regex.find_all(text), SplitBehavior::isolated);
      });
    });
  }
  steps_.emplace_back([](PieceList& pieces) {
    pieces.rewrite([](const Piece& piece, PieceWriter& out) {
      std::string character;
      for (std::size_t at = 0; at < piece.text.size(); ++at) {
        character.clear();
        append_byte_level(piece.text.substr(at, 1), character);
        out.append(character, piece, at);
      }
    });
  });
}

void PreTokenizer::add_metaspace(const Json& part) {
  const MetaspaceOptions options = metaspace_options(part);
  std::string mark;
  append_utf8(options.replacement, mark);
  steps_.emplace_back([=](PieceList& pieces) {
    pieces.rewrite([&](const Piece& piece, PieceWriter& out) {
      const bool marked = piece.text.starts_with(' ') || piece.text.starts_with(mark);
      const bool wanted = options.prepend_scheme == PrependScheme::always ||
                          (options.prepend_scheme == PrependScheme::first && piece.at_start);
      if (wanted && !marked) out.append(mark, piece, 0);
      for (std::size_t at = 0; at < piece.text.size(); ++at) {
        out.append(piece.text[at] == ' ' ? std::string_view(mark) : piece.text.substr(at, 1), piece,
                   at);
      }
    });
  });
  if (!options.split) return;
  steps_.emplace_back([=](PieceList& pieces) {
    pieces.split([&](std::string_view text) {
      const auto marks =
          find_characters(text, [&](char32_t c) { return c == options.replacement; });
      return split_spans(text, marks, SplitBehavior::merged_with_next);
    });
  });
}

}  // namespace moesaic
