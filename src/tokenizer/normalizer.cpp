#include "src/tokenizer/normalizer.h"

#include <optional>
#include <string_view>
#include <utility>

#include "src/tokenizer/aligned_forms.h"
#include "src/tokenizer/growth.h"
#include "src/tokenizer/json_parts.h"
#include "src/tokenizer/regex.h"
#include "src/tokenizer/split.h"
#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

std::optional<NormalForm> normal_form(std::string_view type) {
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  return std::nullopt;
}

void check_length(const NormalizedText& text, std::size_t bytes) {
  require_growth(bytes, text.most_bytes, {"normalizer", "bytes"});
}

std::ptrdiff_t signed_of(std::size_t at) {
  return static_cast<std::ptrdiff_t>(at);
}

/// Nothing at the beginning of the text.
Span start_of(const NormalizedText& text) {
  if (text.origins.empty()) return {};
  return {text.origins[0].begin, text.origins[0].begin};
}

void replace(NormalizedText& text, const Regex& pattern, std::string_view content) {
  const std::vector<Span> matches = pattern.find_all(text.text);
  if (matches.empty()) return;
  check_length(text, matches.size() * content.size());
  const bool cuts_start = content.empty() && matches[0].begin == 0 && matches[0].end > 0;
  if (text.aligned) {
    std::vector<Span> origins;
    std::size_t covered = 0;
    for (const Span& match : matches) {
      origins.insert(origins.end(), text.origins.begin() + signed_of(covered),
                     text.origins.begin() + signed_of(match.begin));
      // What is put in comes from where the last character before it did.
      const Span origin = match.end > 0 ? text.origins[match.end - 1] : start_of(text);
      origins.insert(origins.end(), content.size(), origin);
      covered = match.end;
    }
    origins.insert(origins.end(), text.origins.begin() + signed_of(covered), text.origins.end());
    text.origins = std::move(origins);
  }
  text.text = pattern.replace(text.text, content);
  text.at_start = text.at_start && !cuts_start;
}

void prepend(NormalizedText& text, std::string_view prefix) {
  if (text.text.empty()) return;
  check_length(text, prefix.size());
  if (text.aligned) text.origins.insert(text.origins.begin(), prefix.size(), text.origins[0]);
  text.text.insert(0, prefix);
  text.at_start = text.at_start || !prefix.empty();
}

void normalize(NormalizedText& text, NormalForm form) {
  if (text.aligned) return rewrite(text, normalized_characters(text.text, form));
  text.text = normalized(text.text, form);
}

void make_lower(NormalizedText& text) {
  if (!text.aligned) {
    text.text = lowercase(text.text);
    return;
  }
  std::vector<NewCharacter> characters;
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    at += utf8_length(text.text[at]);
    const std::string lower = lowercase(std::string_view(text.text).substr(begin, at - begin));
    int replaces = 1;
    for (std::size_t i = 0; i < lower.size(); replaces = 0) {
      characters.push_back({next_code_point(lower, i), replaces});
    }
  }
  rewrite(text, characters);
}

void strip(NormalizedText& text, bool left, bool right) {
  const std::vector<Span> kept =
      find_characters(text.text, [](char32_t c) { return !is_white_space(c); });
  const std::size_t size = text.text.size();
  const std::size_t begin = !left ? 0 : kept.empty() ? size : kept.front().begin;
  const std::size_t end = !right ? size : kept.empty() ? begin : kept.back().end;
  text.text = text.text.substr(begin, end - begin);
  if (text.aligned) {
    text.origins.erase(text.origins.begin() + signed_of(end), text.origins.end());
    text.origins.erase(text.origins.begin(), text.origins.begin() + signed_of(begin));
  }
  text.at_start = text.at_start && begin == 0;
}

}  // namespace

void rewrite(NormalizedText& text, const std::vector<NewCharacter>& characters) {
  std::string made;
  std::vector<Span> origins;
  std::size_t at = 0;  // what stands before is replaced
  for (const NewCharacter& character : characters) {
    const bool inserted = character.replaces <= 0;
    const Span origin = !inserted ? text.origins[at]
                        : at > 0  ? text.origins[at - 1]
                                  : start_of(text);
    const std::size_t before = made.size();
    append_utf8(character.code_point, made);
    origins.insert(origins.end(), made.size() - before, origin);
    for (int i = 0; i < character.replaces && at < text.text.size(); ++i) {
      at += utf8_length(text.text[at]);
    }
  }
  text.text = std::move(made);
  text.origins = std::move(origins);
}

void Normalizer::apply(NormalizedText& text) const {
  text.most_bytes = most_growth(text.text.size());
  for (const Step& step : steps_) {
    step(text);
    check_length(text, text.text.size());
  }
}

void Normalizer::add(const Json& part, int depth) {
  check_sequence_depth(part, depth);
  const std::string type = part.at("type").as_string();
  if (type == "Sequence") {
    part.at("normalizers").for_each([&](const std::string&, const Json& inner) {
      add(inner, depth + 1);
    });
  } else if (const auto form = normal_form(type)) {
    steps_.emplace_back([form](NormalizedText& text) { normalize(text, *form); });
  } else if (type == "Lowercase") {
    steps_.emplace_back(make_lower);
  } else if (type == "Prepend") {
    steps_.emplace_back(
        [prefix = part.at("prepend").as_string()](NormalizedText& text) { prepend(text, prefix); });
  } else if (type == "Replace") {
    steps_.emplace_back([pattern = pattern_of(part), content = part.at("content").as_string()](
                            NormalizedText& text) { replace(text, pattern, content); });
  } else if (type == "Strip") {
    steps_.emplace_back([left = part.at("strip_left").as_bool(),
                         right = part.at("strip_right").as_bool()](NormalizedText& text) {
      strip(text, left, right);
    });
  } else {
    unsupported_type(part, "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and Sequence");
  }
}

}  // namespace moesaic
