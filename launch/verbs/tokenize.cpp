#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "launch/input/chat_prompts.h"
#include "launch/input/prompts.h"
#include "launch/input/token_prompts.h"
#include "launch/job/agreement.h"
#include "launch/job/verbs.h"
#include "src/chat/assistant_mask.h"
#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

void print_json(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  fmt::print("{}\n", JsonWriter()
                         .raw_field("ids", fmt::format("[{}]", fmt::join(ids, ", ")))
                         .field("text", tokenizer.decode(ids))
                         .text());
}

void print_table(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) {
    const std::string token = tokenizer.token(id);
    fmt::print("{:>8}  {}{}\n", id, token.empty() ? "(no token has this id)" : token,
               tokenizer.is_special(id) ? "  (special)" : "");
  }
}

/// "[0, 1, 1]", or "null" where it cannot be told.
std::string mask_text(const ChatTemplate& chat_template, const Chat& chat,
                      const jinja::Rendered& rendered, const EncodedText& encoded) {
  const auto spans = assistant_spans(chat_template, chat, rendered);
  if (!spans) return "null";
  std::vector<int> digits;
  for (const bool said : mask_of(encoded, *spans)) digits.push_back(said ? 1 : 0);
  return fmt::format("[{}]", fmt::join(digits, ", "));
}

void tokenize_chats(const Options& options) {
  const std::vector<ChatPrompt> conversations = read_chat_prompts(options);
  const Tokenizer tokenizer = Tokenizer::from_directory(options.model);
  const auto chat_template = ChatTemplate::from_directory(options.model, options.chat_template);
  for (const auto& [chat, where] : conversations) {
    try {
      const jinja::Rendered rendered = chat_template.render(chat);
      const EncodedText encoded = tokenizer.encode_with_spans(rendered.text, false);
      if (options.json) {
        fmt::print("{}\n", JsonWriter()
                               .field("prompt", rendered.text)
                               .raw_field("ids", fmt::format("[{}]", fmt::join(encoded.ids, ", ")))
                               .raw_field("mask", mask_text(chat_template, chat, rendered, encoded))
                               .text());
        continue;
      }
      if (conversations.size() > 1) fmt::print("--- {}\n", where);
      print_table(tokenizer, encoded.ids);
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}", where, error.what());
    }
  }
}

}  // namespace

void run_tokenize(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    require(!options.model.empty(), ErrorKind::usage, "no model: --model DIR says which");
    require_chat_for_its_options(options);
    if (options.chat) return tokenize_chats(options);
    std::vector<Prompt> prompts = read_prompts(options, BadPrompts::refuse);
    const Tokenizer tokenizer = Tokenizer::from_directory(options.model);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<std::int32_t> ids =
          encode_prompt(prompts[i], tokenizer, !options.no_special);
      if (options.json) {
        print_json(tokenizer, ids);
        continue;
      }
      if (prompts.size() > 1) fmt::print("{}--- {}\n", i == 0 ? "" : "\n", prompts[i].where);
      print_table(tokenizer, ids);
    }
  });
}

}  // namespace moesaic
