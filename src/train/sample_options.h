#pragma once

namespace moesaic {

/// How a line of training data is written (docs/training.md).
enum class SampleFormat {
  tokens,               ///< {"input_ids", "labels"}
  messages,             ///< {"messages", "tools"}
  alpaca,               ///< {"instruction", "input", "output", "system", "history"}
  sharegpt,             ///< {"conversations": [{"from", "value"}], "system", "tools"}
  completion,           ///< {"prompt", "completion"}, texts
  completion_messages,  ///< {"prompt", "completion", "tools"}, lists of messages
  text                  ///< {"text"}
};

/// Conversations go through a chat template.
[[nodiscard]] constexpr bool is_conversation(SampleFormat format) noexcept {
  return format == SampleFormat::messages || format == SampleFormat::alpaca ||
         format == SampleFormat::sharegpt || format == SampleFormat::completion_messages;
}

/// Which of an assistant's turns are trained.
enum class TrainOn { all, last };

/// What to do with a sample that is longer than the context.
enum class TooLong { error, cut, drop };

}  // namespace moesaic
