#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"

struct ifaddrs;

namespace moesaic {

/// A TCP connection to the process of another rank, on which nothing is said as long as both live.
struct PeerLink {
  int rank = 0;
  Descriptor socket;
};

/// Where a rank can be reached. Trivial, so that it can travel.
struct PeerContact {
  struct Address {
    std::int32_t family = 0;  // AF_INET or AF_INET6; 0: none
    std::array<std::uint8_t, 16> bytes{};
  };
  std::uint64_t word = 0;  // rank 0's is the job's: who does not know it is of another job
  std::int32_t node = 0;
  std::uint16_t port = 0;  // in the order of the network
  /// Room for bridges of containers, which may stand before the network that others reach.
  std::array<Address, 16> addresses{};
};

/// The first of these addresses of interfaces that others may reach.
[[nodiscard]] decltype(PeerContact::addresses) reachable_addresses(const ifaddrs* all);

/// With which ranks `rank` has links, so that each has some to ranks of other nodes: with the rank
/// of its own place on the next node that has ranks, or the last one there, and with those for
/// which it is that. `nodes`: [ranks] any numbers. Ascending.
[[nodiscard]] std::vector<int> linked_ranks(int rank, std::span<const std::int32_t> nodes);

/// Makes the links of a rank. What cannot be had (a firewall, no network) is left out.
class PeerLinker {
 public:
  /// Listens from now on, to all networks.
  PeerLinker();

  /// Of this rank; its node is for the caller to say.
  [[nodiscard]] const PeerContact& contact() const noexcept { return contact_; }
  /// Links to those of `peers` that make one to this rank until `limit` has passed. Of each pair
  /// the higher rank connects. A peer may believe that there is a link where this rank has given
  /// up: both have to agree afterwards. `contacts`: [ranks].
  [[nodiscard]] std::vector<PeerLink> connect(int rank, std::span<const int> peers,
                                              std::span<const PeerContact> contacts,
                                              std::chrono::milliseconds limit);

 private:
  Descriptor listener_;
  PeerContact contact_;
};

}  // namespace moesaic
