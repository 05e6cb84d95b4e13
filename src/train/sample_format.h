#pragma once

#include "base/json.h"
#include "src/chat/chat.h"
#include "src/train/sample_options.h"

namespace moesaic {

/// The format of a line by its members. Throws Error{file} if it has those of none.
[[nodiscard]] SampleFormat detect_sample_format(const Json& line);

/// The conversation of a line in format messages, alpaca or sharegpt. Throws Error{file} naming the
/// member that is wrong.
[[nodiscard]] Chat read_conversation(const Json& line, SampleFormat format);

}  // namespace moesaic
