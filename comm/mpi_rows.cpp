#include "comm/mpi_rows.h"

#include "base/buffer.h"

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

class MpiRowPart final : public RowPart {
 public:
  MpiRowPart(const MpiHandle& comm, const std::vector<int>& peers)
      : peers_(peers), requests_(comm) {}

  void start(const RowJob& job) override;
  bool progress() override { return requests_.progress(); }
  [[nodiscard]] bool has_sent() const override { return true; }  // it is up to MPI
  [[nodiscard]] std::string missing() const override { return requests_.missing(); }

 private:
  void receive_all(const RowJob& job, int tag);
  void send_all(const RowJob& job, int tag);

  const std::vector<int>& peers_;
  MpiRequests requests_;
  Buffer<std::byte> packed_;
};

void MpiRowPart::start(const RowJob& job) {
  requests_.clear();
  const auto tag = static_cast<int>(job.number % kNumTags);
  receive_all(job, tag);
  send_all(job, tag);
}

void MpiRowPart::receive_all(const RowJob& job, int tag) {
  for (const int peer : peers_) {
    const RowPlacement& place = job.placements[static_cast<std::size_t>(peer)];
    requests_.receive(peer, tag,
                      {job.received + place.offset_bytes, static_cast<std::size_t>(place.bytes)});
  }
}

void MpiRowPart::send_all(const RowJob& job, int tag) {
  std::size_t packed_rows = 0;
  for (const int peer : peers_) packed_rows += job.parts[static_cast<std::size_t>(peer)].size();
  packed_.reserve(static_cast<std::int64_t>(packed_rows) * job.send.row_bytes);
  std::byte* packed = packed_.data();
  for (const int peer : peers_) {
    const std::span<const std::int32_t> rows = job.parts[static_cast<std::size_t>(peer)];
    if (rows.empty()) continue;
    const std::size_t bytes = rows.size() * static_cast<std::size_t>(job.send.row_bytes);
    const std::byte* data = packed;
    if (is_one_block(job.send, rows)) {
      data = job.send.base + rows.front() * job.send.stride_bytes;
    } else {
      copy_rows(job.send, rows, packed);
      packed += bytes;
    }
    requests_.send(peer, tag, {data, bytes});
  }
}

}  // namespace

std::unique_ptr<RowPart> MpiRows::make_part() {
  return std::make_unique<MpiRowPart>(comm_, peers_);
}

}  // namespace moesaic
