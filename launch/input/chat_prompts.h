#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/input/prompts.h"
#include "launch/options/options.h"
#include "src/chat/chat_template.h"
#include "src/chat/conversation.h"

namespace moesaic {

/// What --chat-template-kwargs and --system-prompt say. Throws Error{usage} if the first is no JSON
/// object, or the second not UTF-8.
[[nodiscard]] ConversationDefaults conversation_defaults(const Options& options);

/// A conversation, and where it stands.
struct ChatPrompt {
  Chat chat;
  std::string where;             // "--prompt", "FILE line 3"
  std::optional<Error> error{};  // why there is none
};

/// The conversations of --prompt, or of the whole file, which are a user's turn, or of the lines of
/// --file, JSON each; what they do not say for the template comes from --chat-template-kwargs.
/// Throws Error{usage} if there is none or both; Error{file} if the file cannot be read, and for
/// the first bad line if these are refused.
[[nodiscard]] std::vector<ChatPrompt> read_chat_prompts(const Options& options, BadPrompts bad);

/// Makes the text of the prompt's conversation, or of a conversation in which a user says its text,
/// up to the answer; the system prompt is that of --system-prompt if there is none. Throws
/// Error{usage} for token ids, Error{file} for what is wrong or what the template refuses, both
/// with the prompt's place.
void apply_chat(Prompt& prompt, const ChatTemplate& chat_template, const Options& options);

/// Throws Error{usage} for options that say how conversations are read, without --chat.
void require_chat_for_its_options(const Options& options);

}  // namespace moesaic
