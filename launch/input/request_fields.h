#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "src/generate/sampling_options.h"

namespace moesaic {

/// What one line of a JSONL file says of its request (docs/json.md); the rest comes from the
/// options.
struct RequestFields {
  std::optional<std::string> prompt{};                       // a text
  std::optional<std::vector<std::int32_t>> prompt_tokens{};  // or its tokens, none added
  std::optional<Json> conversation{};                        // or the line, if it has "messages"
  std::string id{};                                          // JSON text; empty: none
  std::optional<std::int64_t> max_tokens{};                  // -1: until the context is full
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::optional<std::int64_t> seed{};  // -1: another one each time
  std::optional<std::int64_t> n{};     // samples
  std::optional<std::vector<std::string>> stop{};
  std::optional<std::int64_t> logprobs{};
  std::optional<double> repetition_penalty{};
  std::optional<double> frequency_penalty{};
  std::optional<double> presence_penalty{};
  std::optional<std::int64_t> repeat_last_n{};
  std::optional<std::vector<LogitBias>> logit_bias{};
  std::optional<bool> ignore_eos{};
};

/// The `id` of a line, a string or a whole number, as JSON text. Throws Error{file} for another.
[[nodiscard]] std::string id_text(const Json& value);

/// Throws Error{file} for a field that a line of requests does not have.
void require_known_fields(const Json& line);

/// Reads one field that says how texts are sampled or end (all of RequestFields but prompts and
/// id) into `fields`; false if it is none of these. null says nothing. Throws Error{file} that
/// names it: it is of another type or out of range.
[[nodiscard]] bool read_sampling_field(std::string_view name, const Json& value,
                                       RequestFields& fields);

/// `line` is an object. Throws Error{file} that names the line and the field: one that is unknown,
/// of another type or out of range, or no or several of prompt and messages.
[[nodiscard]] RequestFields parse_request_fields(const Json& line);

}  // namespace moesaic
