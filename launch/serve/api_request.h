#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launch/input/request_fields.h"
#include "src/chat/chat.h"

namespace moesaic {

/// The two ways in which OpenAI's protocol asks for texts.
enum class ApiKind { completion, chat };

/// A text, to which the tokenizer adds its special tokens, or tokens as they are.
using ApiPrompt = std::variant<std::string, std::vector<std::int32_t>>;

/// What the body of POST /v1/completions or /v1/chat/completions asks for.
struct ApiRequest {
  ApiKind kind = ApiKind::completion;
  std::vector<ApiPrompt> prompts{};  // of completions
  std::optional<Chat> chat{};        // of chats, up to the answer
  RequestFields fields{};            // of each prompt, without any
  std::string model{};               // empty: it names none
  bool echo = false;                 // texts begin with their prompt
  bool stream = false;
  bool include_usage = false;  // in the stream
};

/// Reads it. Throws Error{usage} that names the field: unknown, of another type, out of range, or
/// asking for what is not there. Fields that only the owner of an account needs are ignored; null
/// says nothing.
[[nodiscard]] ApiRequest parse_api_request(ApiKind kind, std::string_view body);

/// The conversation of a chat's body, for which a template makes the text up to the answer: parts
/// of a content that are texts are joined by ends of lines, arguments of tool calls are objects.
/// Throws Error{usage}.
[[nodiscard]] Chat parse_api_chat(std::string_view body);

/// An object of a body. Throws Error{usage} if it is none.
[[nodiscard]] Json parse_api_body(std::string_view body);

}  // namespace moesaic
