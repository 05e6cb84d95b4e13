#include "comm/mpi_messages.h"

#include <vector>

#include "base/error.h"
#include "comm/far_send.h"

namespace moesaic {
namespace {

class MpiMessages final : public Messages {
 public:
  explicit MpiMessages(const MpiHandle& comm) : requests_(comm) {}

  void clear() override {
    requests_.clear();
    received_.clear();
  }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    requests_.send(peer, tag, data);
  }
  std::size_t receive(int peer, int tag, std::span<std::byte> room) override {
    received_.push_back(requests_.receive(peer, tag, room));
    return received_.size() - 1;
  }
  bool progress() override { return requests_.progress(); }
  [[nodiscard]] std::int64_t received_bytes(std::size_t number) const override {
    return requests_.received_bytes(received_[number]);
  }
  [[nodiscard]] RankList unsent() const override { return requests_.unsent(); }

 private:
  MpiRequests requests_;
  std::vector<std::size_t> received_;  // their numbers among the requests
};

}  // namespace

MessageMaker mpi_message_maker(const MpiHandle& comm) {
  int* largest = nullptr;  // tag
  int is_known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &is_known),
            "MPI_Comm_get_attr");
  require(is_known != 0 && *largest >= last_far_tag(), ErrorKind::resource,
          "this MPI has tags up to {}, rows between nodes need them up to {}",
          is_known != 0 ? *largest : 0, last_far_tag());
  return [&comm] { return std::make_unique<MpiMessages>(comm); };
}

}  // namespace moesaic
