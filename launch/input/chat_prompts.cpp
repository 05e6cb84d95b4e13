#include "launch/input/chat_prompts.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text_lines.h"
#include "launch/input/request_fields.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

/// What --chat-template-kwargs says.
jinja::Dict template_variables(const Options& options) {
  if (!options.chat_template_kwargs) return {};
  try {
    return read_template_variables(
        Json::parse(*options.chat_template_kwargs, "--chat-template-kwargs"));
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}", error.what());
  }
}

Chat read_line(const TextLine& line, const std::string& where) {
  require_text(line.text, where);
  const Json conversation = Json::parse(line.text, where);
  if (conversation.is_object()) require_known_fields(conversation);
  return read_chat(conversation);
}

}  // namespace

ConversationDefaults conversation_defaults(const Options& options) {
  require(!options.system_prompt || is_valid_utf8(*options.system_prompt), ErrorKind::usage,
          "the text of --system-prompt is not UTF-8");
  return {template_variables(options), options.system_prompt};
}

std::vector<ChatPrompt> read_chat_prompts(const Options& options, BadPrompts bad) {
  require(options.prompt.has_value() != options.file.has_value(), ErrorKind::usage,
          "--chat needs either --prompt TEXT, a user's turn, or --file FILE with conversations");
  const jinja::Dict variables = template_variables(options);
  std::vector<ChatPrompt> all;
  if (options.prompt || options.whole_file) {
    const Prompt turn = read_prompts(options, bad).front();
    all.push_back({chat_of_user(turn.text), turn.where});
  } else {
    const std::string name = input_name(*options.file);
    const std::string text = read_file_bytes(*options.file);
    TextLines lines(text);
    while (const auto line = lines.next_filled()) {
      all.push_back({.chat = {}, .where = line->where(name)});
      ChatPrompt& prompt = all.back();
      try_prompt(prompt.error, bad, [&] { prompt.chat = read_line(*line, prompt.where); });
    }
    require(!all.empty(), ErrorKind::file, "{} holds no conversation: it is empty", name);
  }
  for (ChatPrompt& prompt : all) add_variables(prompt.chat, variables);
  return all;
}

void apply_chat(Prompt& prompt, const ChatTemplate& chat_template, const Options& options) {
  require(!prompt.fields().prompt_tokens, ErrorKind::usage,
          "{}: token ids are no turn of a conversation; leave --chat out", prompt.where);
  Conversation conversation;
  if (prompt.fields().conversation) {
    conversation = Conversation(read_chat(*prompt.fields().conversation));
  } else {
    conversation.ask(prompt.text);
  }
  conversation.add_defaults(conversation_defaults(options));
  try {
    prompt.text = chat_template.render(conversation.chat()).text;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", prompt.where, error.what());
  }
  prompt.is_chat = true;
}

void require_chat_for_its_options(const Options& options) {
  if (options.chat) return;
  require(!options.chat_template && !options.chat_template_kwargs && !options.system_prompt,
          ErrorKind::usage, "{} says how --chat reads conversations; there is no --chat",
          options.chat_template   ? "--chat-template"
          : options.system_prompt ? "--system-prompt"
                                  : "--chat-template-kwargs");
}

}  // namespace moesaic
