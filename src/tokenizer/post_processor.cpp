#include "src/tokenizer/post_processor.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "src/tokenizer/growth.h"
#include "src/tokenizer/json_parts.h"

namespace moesaic {
namespace {

/// The ids that `special_tokens` of a template has for one name.
std::vector<std::int32_t> special_ids(const Json& part, const Json& name,
                                      const PostProcessor::IsToken& is_token) {
  const Json ids = part.at("special_tokens").at(name.as_string_view()).at("ids");
  std::vector<std::int32_t> tokens;
  ids.for_each([&](const std::string&, const Json& number) {
    tokens.push_back(token_id_of(number));
    require(is_token(tokens.back()), ErrorKind::file, "{}: no token has the id {}", number.where(),
            tokens.back());
  });
  require(!tokens.empty(), ErrorKind::file, "{}: names no token", ids.where());
  return tokens;
}

}  // namespace

PostProcessor::PostProcessor(std::optional<std::int32_t> begin, std::optional<std::int32_t> end) {
  Template& slots = templates_.emplace_back();
  if (begin) slots.push_back({{*begin}});
  slots.push_back({});
  if (end) slots.push_back({{*end}});
}

void PostProcessor::add(const Json& part, const PostProcessor::IsToken& is_token, int depth) {
  check_sequence_depth(part, depth);
  const std::string type = part.at("type").as_string();
  if (type == "Sequence") {
    part.at("processors").for_each([&](const std::string&, const Json& inner) {
      add(inner, is_token, depth + 1);
    });
  } else if (type == "TemplateProcessing") {
    Template& slots = templates_.emplace_back();
    part.at("single").for_each([&](const std::string&, const Json& entry) {
      if (const auto special = entry.find("SpecialToken")) {
        slots.push_back({special_ids(part, special->at("id"), is_token)});
        return;
      }
      const Json sequence = entry.at("Sequence").at("id");
      require(sequence.as_string() == "A", ErrorKind::file, "{} is \"{}\"; a single text is \"A\"",
              sequence.where(), sequence.as_string());
      slots.push_back({});
    });
  } else if (type != "ByteLevel") {
    unsupported_type(part, "TemplateProcessing, ByteLevel and Sequence");
  }
}

EncodedText PostProcessor::apply(EncodedText text, bool add_special_tokens) const {
  const bool has_spans = text.spans.size() == text.ids.size();
  const std::size_t most_ids = most_growth(text.ids.size());
  for (const Template& slots : templates_) {
    EncodedText filled;
    for (const Slot& slot : slots) {
      if (slot.tokens.empty()) {
        filled.ids.insert(filled.ids.end(), text.ids.begin(), text.ids.end());
        filled.spans.insert(filled.spans.end(), text.spans.begin(), text.spans.end());
      } else if (add_special_tokens) {
        filled.ids.insert(filled.ids.end(), slot.tokens.begin(), slot.tokens.end());
        if (has_spans) filled.spans.resize(filled.ids.size());
      }
      require_growth(filled.ids.size(), most_ids, {"post_processor", "tokens"});
    }
    text = std::move(filled);
  }
  return text;
}

}  // namespace moesaic
