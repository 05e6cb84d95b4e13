#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/input/prompts.h"
#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/chat/chat_template.h"
#include "src/model/model_files.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// Texts as tokens of rank 0.
struct TokenPrompts {
  std::optional<Tokenizer> tokenizer;             // rank 0
  std::optional<ChatTemplate> chat_template;      // rank 0, with --chat
  std::uint64_t chat_checksum = 0;                // rank 0, with --chat: of the template's texts
  std::optional<std::int32_t> turn_end;           // rank 0, with --chat (turn_end_token)
  std::vector<Prompt> prompts;                    // rank 0
  std::vector<std::vector<std::int32_t>> tokens;  // rank 0
};

/// Whether a model comes with one.
[[nodiscard]] bool has_tokenizer(const ModelFiles& files);

/// The tokens of a prompt that is a text, or is tokens already; these get their text.
[[nodiscard]] std::vector<std::int32_t> encode_prompt(Prompt& prompt, const Tokenizer& tokenizer,
                                                      bool add_special_tokens = true);

/// Reads the tokenizer, with --chat the chat template, and the texts that `read` gives on rank 0,
/// encodes these with the special tokens that the tokenizer adds. A text is bad, and may be refused
/// by an AgreedError on all ranks, if it is empty, or has a token that the model does not know.
/// Throws Interrupted if a rank is asked to stop. Collective.
[[nodiscard]] TokenPrompts encode_prompts(
    const Runtime& runtime, const OpenModel& model, BadPrompts bad,
    const std::function<std::vector<Prompt>(const InputWatch&)>& read);

/// The tokens of a prompt that reads like those of encode_prompts, or none: then it has its error.
[[nodiscard]] std::vector<std::int32_t> encode_prompt(Prompt& prompt, const TokenPrompts& input,
                                                      const Options& options,
                                                      std::int64_t vocab_size, BadPrompts bad);

/// The tokens of a text, with the special tokens that the tokenizer adds. Throws Error{usage} if
/// there are none, Error{file} if the model does not know one. `where` names the text.
[[nodiscard]] std::vector<std::int32_t> encode_text(const Tokenizer& tokenizer,
                                                    const ModelConfig& config,
                                                    std::string_view text,
                                                    const std::string& where);

/// The same of a whole file, by the model's tokenizer. Throws as read_utf8_file, too.
[[nodiscard]] std::vector<std::int32_t> encode_file(const OpenModel& model,
                                                    const std::string& path);

/// Most tokens of one sequence, and what sets it.
struct ContextLimit {
  std::int64_t tokens = 0;
  std::string source;
};
/// By --ctx-size or the model.
[[nodiscard]] ContextLimit context_of(const Options& options, const ModelConfig& config);

/// Throws Error{usage} unless `tokens` and `new_tokens` fit into the context. `where` names the
/// text.
void require_context(const ContextLimit& limit, std::int64_t tokens, std::int64_t new_tokens,
                     const std::string& where);

}  // namespace moesaic
