#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "comm/far_message.h"
#include "comm/messages.h"
#include "comm/row_transport.h"

namespace moesaic {

/// The tag of message `index` of an exchange: 0 is the first. No two exchanges under way have the
/// same, and none of them that of a collective call.
[[nodiscard]] int far_tag(std::uint64_t exchange, std::int64_t index);
/// The largest of them all.
[[nodiscard]] int last_far_tag();

/// The rows of this rank for all ranks of another node, each distinct row once, on their way to the
/// rank there that receives for all.
class FarSend {
 public:
  FarSend(int agent, const std::vector<int>& ranks) : agent_(agent), ranks_(ranks) {}

  /// Sends what is written already. `job` and `messages` stay until all has left.
  void start(const RowJob& job, Messages& messages);
  /// Rows [first, first + count) of the matrix are written now.
  void mark_ready(std::int64_t first, std::int64_t count);

 private:
  void find_rows();
  void write_head();
  void write_places(std::byte* counts, std::byte* places) const;
  void write_rows(std::size_t first, std::size_t last);
  void write_checksums();
  void fill(std::int64_t begin, std::int64_t end);

  int agent_;                      // its rank in the group
  const std::vector<int>& ranks_;  // of the node, in the group
  const RowJob* job_ = nullptr;
  Messages* messages_ = nullptr;
  FarHeader header_;
  FarLayout layout_;
  std::vector<std::int32_t> rows_;          // [num_rows] distinct, ascending
  std::vector<std::int32_t> place_of_row_;  // [rows of the matrix] or -1
  std::vector<std::int64_t> missing_;       // [messages] bytes that are not written yet
  bool lacks_checksums_ = false;            // they are written when all rows are
  Buffer<std::byte> message_;
};

}  // namespace moesaic
