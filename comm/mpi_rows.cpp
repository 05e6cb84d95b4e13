#include "comm/mpi_rows.h"

#include "comm/row_send.h"

namespace moesaic {
namespace {

constexpr std::uint64_t kNumTags = 1024;

bool is_one_block(const RowSend& send, std::span<const std::int32_t> rows) {
  if (send.stride_bytes != send.row_bytes && rows.size() > 1) return false;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] != rows[i - 1] + 1) return false;
  }
  return true;
}

}  // namespace

MpiExchange::MpiExchange(const MpiHandle& comm, std::uint64_t exchange)
    : requests_(comm), tag_(static_cast<int>(exchange % kNumTags)) {}

void MpiExchange::send(int peer, const RowSend& send, std::span<const std::int32_t> rows,
                       std::byte* packed) {
  if (rows.empty()) return;
  const std::byte* data = packed;
  if (is_one_block(send, rows)) {
    data = send.base + rows.front() * send.stride_bytes;
  } else {
    copy_rows(send, rows, packed);
  }
  requests_.send(peer, tag_, {data, rows.size() * static_cast<std::size_t>(send.row_bytes)});
}

}  // namespace moesaic
