#include "launch/verbs/result_record.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/checksum.h"
#include "base/json.h"
#include "launch/results/logprobs_json.h"

namespace moesaic {
namespace {

constexpr std::int64_t kFormatVersion = 1;

/// What ended the text, as JSON.
std::string stop_json(const Finished& finished) {
  if (finished.stop_string) return json_quote(*finished.stop_string);
  return finished.stop_token ? fmt::format("{}", *finished.stop_token) : "null";
}

/// What results of any kind tell of their prompt.
void add_origin(JsonWriter& line, const Prompt& prompt) {
  if (!prompt.fields().id.empty()) line.raw_field("id", prompt.fields().id);
  if (prompt.tells_checksum) line.field("line", checksum_text(prompt.checksum));
  line.field("prompt", prompt.text);
}

std::string usage_json(std::int64_t prompt_tokens, std::int64_t new_tokens) {
  return JsonWriter()
      .field("prompt_tokens", prompt_tokens)
      .field("completion_tokens", new_tokens)
      .field("total_tokens", prompt_tokens + new_tokens)
      .text();
}

}  // namespace

std::string result_record(const ResultPlace& place, const Finished& finished,
                          const Tokenizer& tokenizer) {
  JsonWriter line;
  line.field("version", kFormatVersion).field("index", place.place.prompt);
  if (place.place.samples > 1) line.field("sample", place.place.sample);
  add_origin(line, place.prompt);
  line.field("text", finished.text)
      .raw_field("ids", fmt::format("[{}]", fmt::join(finished.tokens, ", ")))
      .field("finish_reason", finished.reason == StopReason::length ? "length" : "stop")
      .raw_field("stop", stop_json(finished));
  if (!finished.logprobs.empty()) {
    line.raw_field("logprobs", logprobs_json(finished.logprobs, tokenizer));
  }
  line.raw_field("usage", usage_json(place.prompt_tokens, std::ssize(finished.tokens)));
  return line.text();
}

std::string error_record(const Prompt& prompt, std::int64_t index) {
  JsonWriter line;
  line.field("version", kFormatVersion).field("index", index);
  add_origin(line, prompt);
  return line.field("error", prompt.error->what()).text();
}

}  // namespace moesaic
