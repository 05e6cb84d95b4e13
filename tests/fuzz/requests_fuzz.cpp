// libFuzzer: any bytes as a file of prompts, and as bodies of calls of OpenAI's API. What is
// accepted makes requests whose options are in range, and results that are JSON again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "launch/input/prompts.h"
#include "launch/input/requests.h"
#include "launch/serve/api_request.h"

namespace {

constexpr std::int64_t kVocab = 1000;

void check(const moesaic::RequestFields& fields) {
  const moesaic::RequestDefaults defaults{.context_tokens = 64, .vocab_size = kVocab};
  const auto request = moesaic::make_request(fields, {1, 2}, 3, defaults);
  moesaic::check_sampling(request.first.sampling, kVocab);
  if (request.samples < 1 || request.first.max_new_tokens < 0) std::abort();
  if (request.first.logprobs.value_or(0) < 0) std::abort();
}

void check(const moesaic::Prompt& prompt) {
  check(prompt.fields());
  if (!prompt.fields().id.empty()) (void)moesaic::Json::parse("[" + prompt.fields().id + "]", "id");
}

void check_api(moesaic::ApiKind kind, std::string_view body) {
  try {
    const moesaic::ApiRequest request = moesaic::parse_api_request(kind, body);
    if (request.chat.has_value() != request.prompts.empty()) std::abort();
    check(request.fields);
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::usage) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_api(moesaic::ApiKind::completion, text);
  check_api(moesaic::ApiKind::chat, text);
  try {
    for (const moesaic::Prompt& prompt : moesaic::parse_prompts(text, "fuzz")) {
      if (prompt.error && prompt.error->kind() != moesaic::ErrorKind::file) std::abort();
      if (prompt.error) continue;
      try {
        check(prompt);
      } catch (const moesaic::Error& error) {
        if (error.kind() != moesaic::ErrorKind::usage) std::abort();
      }
    }
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  return 0;
}
