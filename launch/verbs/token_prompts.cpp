#include "launch/verbs/token_prompts.h"

#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

void encode(TokenPrompts& result, const ModelConfig& config) {
  for (const Prompt& prompt : result.prompts) {
    require(!prompt.text.empty(), ErrorKind::usage, "the text of {} is empty", prompt.where);
    std::vector<std::int32_t>& tokens =
        result.tokens.emplace_back(result.tokenizer->encode(prompt.text));
    require(!tokens.empty(), ErrorKind::usage, "the text of {} has no tokens", prompt.where);
    for (const std::int32_t token : tokens) {
      require(token < config.vocab_size, ErrorKind::file,
              "tokenizer.json has token {} (\"{}\"), but config.json has a vocab_size of {}", token,
              result.tokenizer->token(token), config.vocab_size);
    }
  }
}

}  // namespace

TokenPrompts encode_prompts(const Runtime& runtime, const OpenModel& model,
                            const std::function<std::vector<Prompt>()>& read) {
  TokenPrompts result;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    result.prompts = read();
    result.tokenizer = Tokenizer::from_directory(model.files.directory());
    encode(result, model.config);
  });
  for (const std::vector<std::int32_t>& tokens : result.tokens) {
    result.lengths.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  broadcast_vector(runtime.world(), result.lengths);
  return result;
}

void require_context(const Options& options, const ModelConfig& config, std::int64_t tokens,
                     std::int64_t new_tokens, const std::string& where) {
  const std::int64_t limit = context_limit(options, config);
  const std::string extra = new_tokens > 0 ? fmt::format(" + {} (--predict)", new_tokens) : "";
  require(tokens + new_tokens <= limit, ErrorKind::usage,
          "{}: {}{} tokens exceed the context of {} ({})", where, tokens, extra, limit,
          options.ctx_size > 0 ? "--ctx-size"
                               : "max_position_embeddings of the model; --ctx-size may set more");
}

}  // namespace moesaic
