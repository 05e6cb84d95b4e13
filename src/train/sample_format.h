#pragma once

#include <cstddef>

#include "base/json.h"
#include "src/chat/chat.h"
#include "src/train/sample_options.h"

namespace moesaic {

/// The format of a line by its members. Throws Error{file} if it has those of none.
[[nodiscard]] SampleFormat detect_sample_format(const Json& line);

/// A conversation that is trained on.
struct TrainedChat {
  Chat chat;
  std::size_t first = 0;  ///< message from which on the assistant is trained
};

/// That of a line in a format which is_conversation(). Throws Error{file} naming the member that is
/// wrong.
[[nodiscard]] TrainedChat read_conversation(const Json& line, SampleFormat format);

/// Throws Error{file} unless prompt and completion of the line are both texts.
void require_texts(const Json& line);

}  // namespace moesaic
