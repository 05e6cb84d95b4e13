#pragma once

#include <cstdint>
#include <optional>

#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// The special token that the template puts behind what an assistant has said, such as <|im_end|>:
/// whoever meets it has heard the answer, also where the model's configuration does not list it
/// among its end-of-sequence tokens. nullopt where the text goes on otherwise, or the template
/// refuses to be asked.
[[nodiscard]] std::optional<std::int32_t> turn_end_token(const ChatTemplate& chat_template,
                                                         const Tokenizer& tokenizer);

}  // namespace moesaic
