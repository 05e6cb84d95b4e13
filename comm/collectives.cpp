#include "comm/collectives.h"

#include "base/error.h"

namespace moesaic {

void check_counts(std::span<const std::int64_t> send, std::span<const std::int64_t> recv,
                  int size) {
  const auto ranks = static_cast<std::size_t>(size);
  require(send.size() == ranks && recv.size() == ranks, ErrorKind::internal,
          "start_counts: {} and {} counts for {} ranks", send.size(), recv.size(), ranks);
}

}  // namespace moesaic
