#include "comm/profiled_communicator.h"

#include <chrono>

namespace moesaic {

PendingRows ProfiledCommunicator::exchange_rows(const RowSend& send,
                                                std::span<const std::int64_t> expected) {
  const auto start = std::chrono::steady_clock::now();
  base().barrier();
  late_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return base().exchange_rows(send, expected);
}

}  // namespace moesaic
