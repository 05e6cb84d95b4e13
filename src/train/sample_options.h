#pragma once

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

/// Which of an assistant's turns are trained.
enum class TrainOn { all, last };

/// What to do with a sample that is longer than the context.
enum class TooLong { error, cut, drop };

}  // namespace moesaic
