// libFuzzer: any bytes as a chat template, with a conversation to render. What parses must render
// within its limits or be refused, and what it marks must lie inside of its text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "src/jinja/template.h"
#include "src/tokenizer/utf8.h"

namespace {

constexpr std::string_view kVariables = R"({"bos_token": "<s>", "eos_token": "</s>",
  "add_generation_prompt": true, "n": 3, "f": 0.5, "none_value": null,
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
             "properties": {"a": {"type": ["string", "null"]}, "é": {"items": {}}}}}}],
  "messages": [{"role": "system", "content": " Be. "}, {"role": "user", "content": "añ 😀 %s {0}"},
               {"role": "assistant", "content": "<think>x</think>y", "tool_calls":
                  [{"id": "123456789", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
               {"role": "tool", "content": [{"type": "text", "text": "t"}]}]})";

const moesaic::jinja::Dict& variables() {
  static const moesaic::jinja::Value all =
      moesaic::jinja::value_of(moesaic::Json::parse(kVariables, "variables"));
  return *all.dict();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const auto rendered =
        moesaic::jinja::Template::parse(source, "fuzz")
            .render(variables(), {.depth = 200, .work = 1 << 22, .output = 1 << 20});
    if (!moesaic::is_valid_utf8(rendered.text)) std::abort();
    for (const moesaic::jinja::Generated& span : rendered.generated) {
      if (span.begin > span.end) std::abort();
    }
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  return 0;
}
