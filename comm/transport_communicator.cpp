#include "comm/transport_communicator.h"

namespace moesaic {

std::unique_ptr<Communicator> TransportCommunicator::split(int color, int key) {
  parts_.idle->throw_kept();
  return parts_.group->split(*this, color, key);
}

std::unique_ptr<Communicator> TransportCommunicator::split_node() {
  parts_.idle->throw_kept();
  return parts_.group->split_node(*this);
}

PendingRows TransportCommunicator::exchange_rows(const RowSend& send,
                                                 std::span<const std::int64_t> expected) {
  parts_.idle->throw_kept();
  return parts_.rows->start(send, expected);
}

void TransportCommunicator::progress() {
  parts_.idle->throw_kept();
  parts_.idle->attend();
}

std::shared_ptr<SharedMemory> TransportCommunicator::allocate_shared(std::int64_t bytes) {
  parts_.idle->throw_kept();
  return parts_.group->allocate_shared(*this, bytes);
}

}  // namespace moesaic
