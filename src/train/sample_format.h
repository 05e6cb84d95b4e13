#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "src/chat/chat.h"

namespace moesaic {

/// How a line of training data is written (docs/training.md).
enum class SampleFormat {
  tokens,      ///< {"input_ids", "labels"}
  messages,    ///< {"messages", "tools"}
  alpaca,      ///< {"instruction", "input", "output", "system", "history"}
  sharegpt,    ///< {"conversations": [{"from", "value"}], "system", "tools"}
  completion,  ///< {"prompt", "completion"}
  text         ///< {"text"}
};

[[nodiscard]] std::string_view sample_format_name(SampleFormat format);

/// The format of a line by its members. Throws Error{file} if it has those of none.
[[nodiscard]] SampleFormat detect_sample_format(const Json& line);

/// The conversation of a line in format messages, alpaca or sharegpt. Throws Error{file} naming the
/// member that is wrong.
[[nodiscard]] Chat read_conversation(const Json& line, SampleFormat format);

}  // namespace moesaic
