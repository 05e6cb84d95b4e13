// libFuzzer: any bytes as a conversation of `generate --chat` and `tokenize --chat`, from JSON over
// a model's chat template to tokens. What is accepted gives text, and a mask that fits its tokens;
// a conversation that is written and read again is the same.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "src/chat/assistant_mask.h"
#include "src/chat/chat_template.h"
#include "src/chat/conversation.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/utf8.h"

namespace {

const std::string kData = MOESAIC_TEST_DATA;
constexpr std::array<std::string_view, 4> kDialects = {"qwen3", "mistral", "granite", "gpt_oss"};

const moesaic::ChatTemplate& chat_template(std::size_t number) {
  static const std::vector<moesaic::ChatTemplate> all = [] {
    std::vector<moesaic::ChatTemplate> templates;
    for (const std::string_view name : kDialects) {
      templates.push_back(
          moesaic::ChatTemplate::from_directory(kData + "/chat/" + std::string(name)));
    }
    return templates;
  }();
  return all[number % all.size()];
}

const moesaic::Tokenizer& tokenizer() {
  static const auto demo = moesaic::Tokenizer::from_directory(kData + "/demo-model");
  return demo;
}

void check_text(const moesaic::Chat& chat, const moesaic::ChatTemplate& chat_template) {
  const moesaic::jinja::Rendered rendered = chat_template.render(chat);
  if (!moesaic::is_valid_utf8(rendered.text)) std::abort();
  const moesaic::EncodedText encoded = tokenizer().encode_with_spans(rendered.text, false);
  if (encoded.ids != tokenizer().encode(rendered.text, false)) std::abort();
  const auto spans = moesaic::assistant_spans(chat_template, chat, rendered);
  if (!spans) return;
  for (const moesaic::Span& span : *spans) {
    if (span.begin > span.end || span.end > rendered.text.size()) std::abort();
  }
  if (moesaic::mask_of(encoded, *spans).size() != encoded.ids.size()) std::abort();
}

void check_round_trip(const moesaic::Chat& chat) {
  const std::string text = moesaic::Conversation(chat).json();
  const moesaic::Chat again = moesaic::read_chat(moesaic::Json::parse(text, "conversation"));
  if (moesaic::Conversation(again).json() != text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    const moesaic::Chat chat = moesaic::read_chat(moesaic::Json::parse(line, "fuzz"));
    check_round_trip(chat);
    check_text(chat, chat_template(size));
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  return 0;
}
