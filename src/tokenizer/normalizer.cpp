#include "src/tokenizer/normalizer.h"

#include <optional>
#include <string_view>
#include <utility>

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

void replace(NormalizedText& text, const Regex& pattern, std::string_view content) {
  const std::vector<Span> matches = pattern.find_all(text.text);
  if (matches.empty()) return;
  const bool cuts_start = content.empty() && matches[0].begin == 0 && matches[0].end > 0;
  text.text = pattern.replace(text.text, content);
  text.at_start = text.at_start && !cuts_start;
}

void strip(NormalizedText& text, bool left, bool right) {
  const std::vector<Span> kept =
      find_characters(text.text, [](char32_t c) { return !is_white_space(c); });
  const std::size_t size = text.text.size();
  const std::size_t begin = !left ? 0 : kept.empty() ? size : kept.front().begin;
  const std::size_t end = !right ? size : kept.empty() ? begin : kept.back().end;
  text.text = text.text.substr(begin, end - begin);
  text.at_start = text.at_start && begin == 0;
}

}  // namespace

void Normalizer::apply(NormalizedText& text) const {
  for (const Step& step : steps_) step(text);
}

void Normalizer::add(const Json& part, int depth) {
  check_sequence_depth(part, depth);
  const std::string type = part.at("type").as_string();
  if (type == "Sequence") {
    part.at("normalizers").for_each([&](const std::string&, const Json& inner) {
      add(inner, depth + 1);
    });
  } else if (const auto form = normal_form(type)) {
    steps_.emplace_back([form](NormalizedText& text) { text.text = normalized(text.text, *form); });
  } else if (type == "Lowercase") {
    steps_.emplace_back([](NormalizedText& text) { text.text = lowercase(text.text); });
  } else if (type == "Prepend") {
    steps_.emplace_back([prefix = part.at("prepend").as_string()](NormalizedText& text) {
      if (text.text.empty()) return;
      text.text.insert(0, prefix);
      text.at_start = text.at_start || !prefix.empty();
    });
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
