#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// Which bytes of `whole`, the text of `chat`, an assistant said: what the template's generation
/// blocks made. A template without them is asked again for each turn of an assistant: the turn is
/// what lies between the text before it with a generation prompt and the text up to its end, if
/// the whole text begins with both. nullopt where it does not, or the template refuses a part.
[[nodiscard]] std::optional<std::vector<Span>> assistant_spans(const ChatTemplate& chat_template,
                                                               const Chat& chat,
                                                               const jinja::Rendered& whole);

/// Of these bytes those of the last turn: of the last messages of an assistant with none of others
/// between them. Generation blocks are of it that begin behind what the template writes of the
/// messages before; without them it does not matter how the template writes earlier turns. nullopt
/// where the text does not begin with what is before the turn, or the template refuses a part.
[[nodiscard]] std::optional<std::vector<Span>> last_turn_spans(const ChatTemplate& chat_template,
                                                               const Chat& chat,
                                                               const jinja::Rendered& whole);

/// Whether the first message is an assistant's: without generation blocks, nothing tells then what
/// he said.
[[nodiscard]] bool assistant_speaks_first(const Chat& chat);

/// For each token whether it holds a byte of one of the spans, which ascend.
[[nodiscard]] std::vector<bool> mask_of(const EncodedText& tokens, const std::vector<Span>& spans);

}  // namespace moesaic
