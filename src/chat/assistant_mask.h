#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// Which bytes of `whole`, the text of `chat`, an assistant said in the messages from `first` on:
/// what the template's generation blocks made, of those that begin behind what the template writes
/// of the messages before. A template without them is asked again for each message of an assistant:
/// it is what lies between the text before it with a generation prompt and the text up to its end,
/// if the whole text begins with both; it does not matter then how the template writes messages
/// before `first`. nullopt where the text does not begin so, or the template refuses a part.
[[nodiscard]] std::optional<std::vector<Span>> assistant_spans(const ChatTemplate& chat_template,
                                                               const Chat& chat,
                                                               const jinja::Rendered& whole,
                                                               std::size_t first = 0);

/// The first message of the last turn: of the last messages of an assistant with none of others
/// between them. 0 if none speaks.
[[nodiscard]] std::size_t last_turn(const Chat& chat);

/// Whether the first message is an assistant's: without generation blocks, nothing tells then what
/// he said.
[[nodiscard]] bool assistant_speaks_first(const Chat& chat);

/// For each token whether it holds a byte of one of the spans, which ascend.
[[nodiscard]] std::vector<bool> mask_of(const EncodedText& tokens, const std::vector<Span>& spans);

}  // namespace moesaic
