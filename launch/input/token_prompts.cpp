#include "launch/input/token_prompts.h"

#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/small_file.h"
#include "launch/input/chat_prompts.h"
#include "launch/input/reading.h"
#include "src/chat/turn_end.h"

namespace moesaic {
namespace {

void require_known(const Tokenizer& tokenizer, std::int32_t token, std::int64_t vocab_size) {
  require(token < vocab_size, ErrorKind::file,
          "tokenizer.json has token {} (\"{}\"), but config.json has a vocab_size of {}", token,
          tokenizer.token(token), vocab_size);
}

void check_tokens(const Prompt& prompt, std::span<const std::int32_t> tokens,
                  const Tokenizer& tokenizer, std::int64_t vocab_size) {
  for (const std::int32_t token : tokens) {
    require(token < vocab_size || !prompt.fields().prompt_tokens, ErrorKind::file,
            "{}: prompt: token id {} is outside the model's vocabulary of {}", prompt.where, token,
            vocab_size);
    require_known(tokenizer, token, vocab_size);
  }
}

std::uint64_t checksum_of(const ChatFiles& files) {
  Checksum sum;
  for (const auto& [name, source] : files.templates) {
    for (const std::string* text : {&name, &source.text}) {
      const std::size_t size = text->size();
      sum.add(std::as_bytes(std::span(&size, 1)));
      sum.add(std::as_bytes(std::span(*text)));
    }
  }
  return sum.value();
}

}  // namespace

bool has_tokenizer(const ModelFiles& files) {
  return file_exists(files.path_of("tokenizer.json"));
}

std::vector<std::int32_t> encode_text(const Tokenizer& tokenizer, const ModelConfig& config,
                                      std::string_view text, const std::string& where) {
  require(!text.empty(), ErrorKind::file, "the text of {} is empty", where);
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  require(!tokens.empty(), ErrorKind::file, "the text of {} has no tokens", where);
  for (const std::int32_t token : tokens) require_known(tokenizer, token, config.vocab_size);
  return tokens;
}

std::vector<std::int32_t> encode_file(const OpenModel& model, const std::string& path) {
  return encode_text(Tokenizer::from_directory(model.files.directory()), model.config,
                     read_utf8_file(path), input_name(path));
}

std::vector<std::int32_t> encode_prompt(Prompt& prompt, const Tokenizer& tokenizer,
                                        bool add_special_tokens) {
  require(prompt.is_chat || !prompt.fields().conversation, ErrorKind::usage,
          "{}: \"messages\" need --chat", prompt.where);
  if (!prompt.fields().prompt_tokens) return tokenizer.encode(prompt.text, add_special_tokens);
  prompt.text = tokenizer.decode(*prompt.fields().prompt_tokens);
  return *prompt.fields().prompt_tokens;
}

std::vector<std::int32_t> encode_prompt(Prompt& prompt, const TokenPrompts& input,
                                        const Options& options, std::int64_t vocab_size,
                                        BadPrompts bad) {
  std::vector<std::int32_t> tokens;
  if (prompt.error) return tokens;
  try_prompt(prompt.error, bad, [&] {
    const bool is_text = !prompt.fields().prompt_tokens && !prompt.fields().conversation;
    const ErrorKind kind = options.prompt ? ErrorKind::usage : ErrorKind::file;
    require(!is_text || !prompt.text.empty(), kind, "the text of {} is empty", prompt.where);
    if (input.chat_template) apply_chat(prompt, *input.chat_template, options);
    tokens = encode_prompt(prompt, *input.tokenizer, !prompt.is_chat);
    require(!tokens.empty(), kind, "the text of {} has no tokens", prompt.where);
    check_tokens(prompt, tokens, *input.tokenizer, vocab_size);
  });
  return tokens;
}

TokenPrompts encode_prompts(const Runtime& runtime, const OpenModel& model, BadPrompts bad,
                            const std::function<std::vector<Prompt>(const InputWatch&)>& read) {
  TokenPrompts result;
  read_texts(runtime, [&](const ReadProgress& reading) {
    const Options& options = runtime.options();
    const std::string& directory = model.files.directory();
    require_chat_for_its_options(options);
    result.prompts = read([&] { reading(0, 1); });
    result.tokenizer = Tokenizer::from_directory(directory);
    if (options.chat) {
      ChatFiles files = read_chat_files(directory, options.chat_template);
      result.chat_checksum = checksum_of(files);
      result.chat_template = ChatTemplate(std::move(files));
      result.turn_end = turn_end_token(*result.chat_template, *result.tokenizer);
    }
    for (Prompt& prompt : result.prompts) {
      result.tokens.push_back(encode_prompt(prompt, result, options, model.config.vocab_size, bad));
      reading(std::ssize(result.tokens), std::ssize(result.prompts));
    }
  });
  return result;
}

ContextLimit context_of(const Options& options, const ModelConfig& config) {
  return {.tokens = context_limit(options, config),
          .source = options.ctx_size > 0
                        ? "--ctx-size"
                        : "max_position_embeddings of the model; --ctx-size may set more"};
}

void require_context(const ContextLimit& limit, std::int64_t tokens, std::int64_t new_tokens,
                     const std::string& where) {
  const std::string extra = new_tokens > 0 ? fmt::format(" + {} new", new_tokens) : "";
  require(tokens + new_tokens <= limit.tokens, ErrorKind::usage,
          "{}: {}{} tokens exceed the context of {} ({})", where, tokens, extra, limit.tokens,
          limit.source);
}

}  // namespace moesaic
