#include "launch/results/logprobs_json.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/json.h"

namespace moesaic {
namespace {

JsonWriter entry(const TokenLogprob& logprob, const Tokenizer& tokenizer) {
  JsonWriter out;
  out.field("id", std::int64_t{logprob.token})
      .field("token", logprob_token_text(logprob.token, tokenizer))
      .field("logprob", static_cast<double>(logprob.logprob));
  return out;
}

}  // namespace

std::string logprob_token_text(std::int32_t token, const Tokenizer& tokenizer) {
  const std::array twice = {token, token};
  const std::string once = tokenizer.decode(std::span(twice).first(1), false);
  const std::string both = tokenizer.decode(twice, false);
  return both.starts_with(once) ? both.substr(once.size()) : once;
}

std::string logprobs_json(std::span<const std::vector<TokenLogprob>> tokens,
                          const Tokenizer& tokenizer) {
  std::vector<std::string> content;
  for (const std::vector<TokenLogprob>& logprobs : tokens) {
    std::vector<std::string> top;
    for (const TokenLogprob& logprob : std::span(logprobs).subspan(1)) {
      top.push_back(entry(logprob, tokenizer).text());
    }
    JsonWriter own = entry(logprobs.front(), tokenizer);
    own.raw_field("top_logprobs", fmt::format("[{}]", fmt::join(top, ", ")));
    content.push_back(own.text());
  }
  return JsonWriter().raw_field("content", fmt::format("[{}]", fmt::join(content, ", "))).text();
}

}  // namespace moesaic
