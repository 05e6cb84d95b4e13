// Ranks of several nodes, here threads, watch each other over connections of this machine.

#include "comm/peer_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace moesaic {
namespace {

using namespace std::chrono_literals;

constexpr auto kLimit = 60s;  // for what comes about

TEST(PeerLinks, ranks_have_links_to_the_nodes_beside_their_own) {
  const auto linked = [](std::vector<std::int32_t> nodes) {
    std::vector<std::vector<int>> all;
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
      all.push_back(linked_ranks(rank, nodes));
    }
    return all;
  };
  using Links = std::vector<std::vector<int>>;
  EXPECT_EQ(linked({0, 0, 0}), (Links{{}, {}, {}})) << "of one node";
  EXPECT_EQ(linked({0, 1}), (Links{{1}, {0}}));
  EXPECT_EQ(linked({0, 1, 2}), (Links{{1, 2}, {0, 2}, {0, 1}}));
  EXPECT_EQ(linked({0, 1, 2, 3}), (Links{{1, 3}, {0, 2}, {1, 3}, {0, 2}}));
  EXPECT_EQ(linked({0, 0, 2, 2}), (Links{{2}, {3}, {0}, {1}}));
  EXPECT_EQ(linked({0, 1, 0, 1}), (Links{{1}, {0}, {3}, {2}})) << "nodes take turns";
  EXPECT_EQ(linked({0, 0, 0, 3}), (Links{{3}, {3}, {3}, {0, 1, 2}}));
}

/// Interfaces as the system lists them.
class Interfaces {
 public:
  void add(int family, const char* address, unsigned flags = IFF_UP) {
    Entry& entry = entries_.emplace_back();
    entry.socket.ss_family = static_cast<sa_family_t>(family);
    void* const bytes =
        family == AF_INET
            ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(entry.socket).sin_addr)
            : static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(entry.socket).sin6_addr);
    ASSERT_EQ(inet_pton(family, address, bytes), 1) << address;
    entry.of.ifa_addr = reinterpret_cast<sockaddr*>(&entry.socket);
    entry.of.ifa_flags = flags;
    if (entries_.size() > 1) std::prev(entries_.end(), 2)->of.ifa_next = &entry.of;
  }
  [[nodiscard]] std::vector<std::string> reachable() const {
    std::vector<std::string> texts;
    for (const PeerContact::Address& address : reachable_addresses(&entries_.front().of)) {
      if (address.family == 0) continue;
      std::array<char, INET6_ADDRSTRLEN> text{};
      texts.emplace_back(
          inet_ntop(address.family, address.bytes.data(), text.data(), INET6_ADDRSTRLEN));
    }
    return texts;
  }

 private:
  struct Entry {
    sockaddr_storage socket{};
    ifaddrs of{};
  };
  std::list<Entry> entries_;
};

TEST(PeerLinks, an_address_behind_those_of_many_bridges_is_told) {
  Interfaces interfaces;
  interfaces.add(AF_INET, "127.0.0.1", IFF_UP | IFF_LOOPBACK);
  std::vector<std::string> wanted;
  for (int bridge = 17; bridge < 25; ++bridge) {
    wanted.push_back("172." + std::to_string(bridge) + ".0.1");
    interfaces.add(AF_INET, wanted.back().c_str());
  }
  interfaces.add(AF_INET, "192.168.7.7", 0);
  wanted.emplace_back("10.1.2.3");
  interfaces.add(AF_INET, "10.1.2.3");
  interfaces.add(AF_INET6, "fe80::1");
  wanted.emplace_back("2001:db8::5");
  interfaces.add(AF_INET6, "2001:db8::5");
  EXPECT_EQ(interfaces.reachable(), wanted);
  for (int more = 1; more < 30; ++more) interfaces.add(AF_INET, "10.9.9.9");
  EXPECT_EQ(interfaces.reachable().size(), PeerContact{}.addresses.size());
}

/// What ranks tell the same process that they are to reach it at.
PeerContact contact_here(const PeerLinker& linker) {
  PeerContact contact = linker.contact();
  contact.addresses = {};
  contact.addresses[0] = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
  contact.addresses[1] = contact.addresses[0];  // reached in two ways
  return contact;
}

using Peers = std::vector<int>;

/// [ranks] their links, if each listens at its contact and believes in `contacts`.
std::vector<std::vector<PeerLink>> connect(std::vector<PeerLinker>& linkers,
                                           const std::vector<PeerContact>& contacts,
                                           const std::vector<Peers>& peers,
                                           std::chrono::milliseconds limit) {
  std::vector<std::vector<PeerLink>> links(peers.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      links[rank] = linkers[rank].connect(static_cast<int>(rank), peers[rank], contacts, limit);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return links;
}

/// Ranks, each of which is a node, and what they have told.
class Ring {
 public:
  /// All watch but `lost`, which only has links.
  explicit Ring(int size, int lost = -1) : watches_(static_cast<std::size_t>(size)) {
    std::vector<PeerLinker> linkers(watches_.size());
    std::vector<PeerContact> contacts;
    std::vector<Peers> peers;
    std::vector<std::int32_t> nodes(watches_.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    for (std::size_t rank = 0; rank < linkers.size(); ++rank) {
      peers.push_back(linked_ranks(static_cast<int>(rank), nodes));
      contacts.push_back(contact_here(linkers[rank]));
    }
    links_ = connect(linkers, contacts, peers, kLimit);
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      EXPECT_EQ(links_[rank].size(), peers[rank].size()) << "rank " << rank;
      if (static_cast<int>(rank) == lost) continue;
      watches_[rank] = std::make_unique<PeerWatch>(std::move(links_[rank]),
                                                   [this](int peer, PeerWatch::Loss loss) {
                                                     EXPECT_EQ(loss, PeerWatch::Loss::has_ended);
                                                     const std::lock_guard lock(mutex_);
                                                     told_.insert(peer);
                                                   });
    }
  }
  /// As the system does it when the process of `rank` ends, which does not watch.
  void end(int rank) { links_[static_cast<std::size_t>(rank)].clear(); }
  std::unique_ptr<PeerWatch>& watch(int rank) { return watches_[static_cast<std::size_t>(rank)]; }
  /// What rank `rank` knows in the end to be lost.
  [[nodiscard]] int hears(int rank) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (watch(rank)->lost_rank() < 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return watch(rank)->lost_rank();
  }
  /// Who has been told to be lost, after all have gone.
  [[nodiscard]] std::set<int> told() {
    for (auto& watch : watches_) watch.reset();
    return told_;
  }

 private:
  std::vector<std::vector<PeerLink>> links_;
  std::mutex mutex_;
  std::set<int> told_;
  std::vector<std::unique_ptr<PeerWatch>> watches_;  // go first: they tell
};

TEST(PeerLinks, are_made_with_peers_of_this_job_alone) {
  std::vector<PeerLinker> linkers(4);
  std::vector<PeerContact> contacts;
  for (const PeerLinker& linker : linkers) contacts.push_back(contact_here(linker));
  std::swap(contacts[1].port, contacts[2].port);  // where another rank listens
  contacts[0].addresses = {};                     // cannot be reached
  const auto links = connect(linkers, contacts, {{3}, {3}, {3}, {0, 1}}, 50ms);
  for (const auto& of_rank : links) EXPECT_TRUE(of_rank.empty());
}

TEST(PeerLinks, strangers_get_no_link) {
  std::vector<PeerLinker> linkers(2);
  std::vector<PeerContact> contacts = {contact_here(linkers[0]), contact_here(linkers[1])};
  std::vector<PeerContact> other_job = contacts;
  ++other_job[0].word;
  std::thread stranger(
      [&] { EXPECT_TRUE(linkers[1].connect(1, Peers{0}, other_job, 50ms).empty()); });
  EXPECT_TRUE(linkers[0].connect(0, Peers{1}, contacts, 50ms).empty());
  stranger.join();
}

TEST(PeerWatch, all_hear_of_a_rank_that_ends_and_nobody_blames_those_that_end_then) {
  Ring ring(5, 2);
  ring.end(2);
  for (const int rank : {0, 1, 3, 4}) EXPECT_EQ(ring.hears(rank), 2) << "rank " << rank;
  EXPECT_EQ(ring.told(), std::set{2});
}

TEST(PeerWatch, ranks_that_go_in_order_are_not_lost) {
  Ring ring(3);
  for (const int rank : {1, 0, 2}) {
    EXPECT_EQ(ring.watch(rank)->lost_rank(), -1);
    ring.watch(rank).reset();
  }
  EXPECT_EQ(ring.told(), std::set<int>());
}

TEST(PeerWatch, others_are_watched_when_a_rank_has_gone) {
  Ring ring(3, 2);
  ring.watch(0).reset();
  ring.end(2);
  EXPECT_EQ(ring.hears(1), 2);
  EXPECT_EQ(ring.told(), std::set{2});
}

/// Rank 2, which ends, is seen by rank 1 alone if it does not know yet that rank 0 fails: it has
/// been told that before.
TEST(PeerWatch, nobody_is_lost_in_a_job_that_a_rank_ends) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::array<int, 2> others{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, others.data()), 0);
  const auto forbid = [](int peer, PeerWatch::Loss) { ADD_FAILURE() << "rank " << peer; };
  std::vector<PeerLink> links;
  links.push_back({0, Descriptor(ends[1])});
  PeerWatch failing(std::move(links), forbid);
  failing.say_failing();
  links.clear();
  links.push_back({1, Descriptor(ends[0])});
  links.push_back({2, Descriptor(others[0])});
  Descriptor other(others[1]);
  PeerWatch middle(std::move(links), forbid);
  // It has been passed on.
  pollfd file{other.number(), POLLIN, 0};
  EXPECT_EQ(::poll(&file, 1, 60'000), 1);
  other = Descriptor();
  EXPECT_EQ(middle.lost_rank(), -1);
}

}  // namespace
}  // namespace moesaic
