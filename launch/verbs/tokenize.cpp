#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "launch/input/bad_count.h"
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

std::string ids_json(const std::vector<std::int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

std::string table(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string token = tokenizer.token(id);
    text += fmt::format("{:>8}  {}{}\n", id, token.empty() ? "(no token has this id)" : token,
                        tokenizer.is_special(id) ? "  (special)" : "");
  }
  return text;
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

/// Prints what becomes of prompts: of each at once, or of all if no bad one is among them.
class TokenOutput {
 public:
  TokenOutput(const Options& options, std::size_t prompts)
      : json_(options.json), bad_prompts_(bad_prompts(options)), has_titles_(prompts > 1) {}

  /// What `make` gives, which throws Error for a prompt that is bad, as `error` tells of others.
  void add(const std::string& where, std::optional<Error> error,
           const std::function<std::string()>& make) {
    if (!json_ && has_titles_) text_ += fmt::format("{}--- {}\n", all_ == 0 ? "" : "\n", where);
    ++all_;
    if (!error) try_prompt(error, bad_prompts_, [&] { text_ += make(); });
    if (error) {
      bad_.add(*error);
      text_ += json_ ? JsonWriter().field("error", error->what()).text() + "\n"
                     : fmt::format("[{}]\n", error->what());
    }
    if (bad_prompts_ == BadPrompts::keep) print();
  }
  void end(const Log& log) {
    print();
    flush_output();
    bad_.warn(log, all_, "encoded");
    bad_.require_a_good_one(all_);
  }

 private:
  void print() {
    std::fwrite(text_.data(), 1, text_.size(), stdout);
    text_.clear();
  }

  bool json_;
  BadPrompts bad_prompts_;
  bool has_titles_;
  std::string text_;  // not yet printed
  std::int64_t all_ = 0;
  BadCount bad_;
};

void tokenize_chats(const Options& options, const Log& log) {
  const std::vector<ChatPrompt> conversations = read_chat_prompts(options, bad_prompts(options));
  const Tokenizer tokenizer = Tokenizer::from_directory(options.model);
  const auto chat_template = ChatTemplate::from_directory(options.model, options.chat_template);
  const auto text_of = [&](const Chat& chat) {
    const jinja::Rendered rendered = chat_template.render(chat);
    const EncodedText encoded = tokenizer.encode_with_spans(rendered.text, false);
    if (!options.json) return table(tokenizer, encoded.ids);
    return JsonWriter()
               .field("prompt", rendered.text)
               .raw_field("ids", ids_json(encoded.ids))
               .raw_field("mask", mask_text(chat_template, chat, rendered, encoded))
               .text() +
           "\n";
  };
  TokenOutput output(options, conversations.size());
  for (const ChatPrompt& prompt : conversations) {
    output.add(prompt.where, prompt.error, [&] {
      try {
        return text_of(prompt.chat);
      } catch (const Error& error) {
        fail(error.kind(), "{}: {}", prompt.where, error.what());
      }
    });
  }
  output.end(log);
}

void tokenize_prompts(const Options& options, const Log& log) {
  std::vector<Prompt> prompts = read_prompts(options, bad_prompts(options));
  const Tokenizer tokenizer = Tokenizer::from_directory(options.model);
  TokenOutput output(options, prompts.size());
  for (Prompt& prompt : prompts) {
    output.add(prompt.where, prompt.error, [&] {
      const std::vector<std::int32_t> ids = encode_prompt(prompt, tokenizer, !options.no_special);
      if (!options.json) return table(tokenizer, ids);
      return JsonWriter()
                 .raw_field("ids", ids_json(ids))
                 .field("text", tokenizer.decode(ids))
                 .text() +
             "\n";
    });
  }
  output.end(log);
}

}  // namespace

void run_tokenize(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    require(!options.model.empty(), ErrorKind::usage, "no model: --model DIR says which");
    require_chat_for_its_options(options);
    (options.chat ? tokenize_chats : tokenize_prompts)(options, runtime.log());
  });
}

}  // namespace moesaic
