#include "comm/peer_links.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <random>

namespace moesaic {
namespace {

/// What both ends say first: the one that connects, then the other.
struct Hello {
  std::uint64_t word = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};

/// A socket address of any family.
struct SocketAddress {
  SocketAddress(int family, const void* bytes, std::uint16_t port) {
    if (family == AF_INET) {
      auto& v4 = reinterpret_cast<sockaddr_in&>(room);
      v4.sin_port = port;
      if (bytes != nullptr) std::memcpy(&v4.sin_addr, bytes, sizeof v4.sin_addr);
      size = sizeof v4;
    } else {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(room);
      v6.sin6_port = port;
      if (bytes != nullptr) std::memcpy(&v6.sin6_addr, bytes, sizeof v6.sin6_addr);
      size = sizeof v6;
    }
    room.ss_family = static_cast<sa_family_t>(family);
  }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&room); }

  sockaddr_storage room{};
  socklen_t size = 0;
};

Descriptor make_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// At any port of this machine; sets `port`. AF_INET6 hears both families.
Descriptor listen_at(int family, std::uint16_t& port) {
  Descriptor socket = make_socket(family);
  const int off = 0;
  if (family == AF_INET6) {
    ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  SocketAddress address(family, nullptr, 0);  // the zero address: any
  if (::bind(socket.number(), address.get(), address.size) != 0 ||
      ::listen(socket.number(), SOMAXCONN) != 0 ||
      ::getsockname(socket.number(), address.get(), &address.size) != 0) {
    return Descriptor();
  }
  port = family == AF_INET ? reinterpret_cast<sockaddr_in&>(address.room).sin_port
                           : reinterpret_cast<sockaddr_in6&>(address.room).sin6_port;
  return socket;
}

/// Of this machine.
auto own_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) all = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  return reachable_addresses(all);
}

/// Of a link. A machine that is gone says nothing: the system asks for it.
void settle(int socket) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 11'000);
}

/// The links of a rank as they come about. The end that connects tries all addresses of a peer at
/// once; the other one answers the first call, so that both know which one is the link.
class Handshakes {
 public:
  Handshakes(int listener, int rank, std::span<const int> peers,
             std::span<const PeerContact> contacts)
      : listener_(listener), rank_(rank), word_(contacts[0].word) {
    for (const int peer : peers) {
      awaited_.push_back(peer);
      if (peer > rank) continue;  // it connects
      for (const PeerContact::Address& address : contacts[static_cast<std::size_t>(peer)].addresses)
        call(peer, address, contacts[static_cast<std::size_t>(peer)].port);
    }
  }
  std::vector<PeerLink> run(std::chrono::milliseconds limit);

 private:
  enum class State { connecting, called, accepted };
  struct Attempt {
    State state = State::connecting;
    int peer = -1;  // of an accepted one: not known yet
    Descriptor socket{};
  };
  void call(int peer, const PeerContact::Address& address, std::uint16_t port);
  void accept_all();
  void go_on(Attempt& attempt);
  [[nodiscard]] bool say_hello(const Attempt& attempt) const;
  [[nodiscard]] bool awaits(int peer) const { return std::ranges::count(awaited_, peer) > 0; }

  int listener_;
  int rank_;
  std::uint64_t word_;
  std::vector<int> awaited_;
  std::vector<Attempt> attempts_;  // without a socket: over
  std::vector<PeerLink> links_;
};

void Handshakes::call(int peer, const PeerContact::Address& address, std::uint16_t port) {
  if (address.family == 0 || port == 0) return;
  Descriptor socket = make_socket(address.family);
  SocketAddress there(address.family, address.bytes.data(), port);
  if (::connect(socket.number(), there.get(), there.size) != 0 && errno != EINPROGRESS) return;
  attempts_.push_back({State::connecting, peer, std::move(socket)});
}

void Handshakes::accept_all() {
  while (true) {
    Descriptor socket(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    attempts_.push_back({State::accepted, -1, std::move(socket)});
  }
}

bool Handshakes::say_hello(const Attempt& attempt) const {
  const Hello hello{word_, rank_, attempt.peer};
  return ::send(attempt.socket.number(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
}

/// Something has happened to it.
void Handshakes::go_on(Attempt& attempt) {
  if (attempt.state == State::connecting) {
    attempt.state = State::called;
    if (!say_hello(attempt)) attempt.socket = Descriptor();
    return;
  }
  Hello hello;
  const auto bytes = ::recv(attempt.socket.number(), &hello, sizeof hello, 0);
  if (bytes < 0 && errno == EAGAIN) return;
  const bool is_peer =
      bytes == sizeof hello && hello.word == word_ && hello.to == rank_ && awaits(hello.from) &&
      (attempt.state == State::accepted ? hello.from > rank_ : hello.from == attempt.peer);
  attempt.peer = hello.from;
  if (is_peer && (attempt.state == State::called || say_hello(attempt))) {
    std::erase(awaited_, attempt.peer);
    settle(attempt.socket.number());
    links_.push_back({attempt.peer, std::move(attempt.socket)});
  }
  attempt.socket = Descriptor();
}

std::vector<PeerLink> Handshakes::run(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<pollfd> files;
  while (!awaited_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    files.assign(1, {listener_, POLLIN, 0});
    for (const Attempt& attempt : attempts_) {
      const bool calls = attempt.state == State::connecting;
      files.push_back({attempt.socket.number(), static_cast<short>(calls ? POLLOUT : POLLIN), 0});
    }
    if (::poll(files.data(), files.size(), static_cast<int>(left.count())) <= 0) continue;
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      if (files[i + 1].revents != 0) go_on(attempts_[i]);
    }
    std::erase_if(attempts_, [](const Attempt& attempt) { return !attempt.socket.is_open(); });
    if (files[0].revents != 0) accept_all();
  }
  return std::move(links_);
}

}  // namespace

decltype(PeerContact::addresses) reachable_addresses(const ifaddrs* all) {
  decltype(PeerContact::addresses) found{};
  std::size_t count = 0;
  for (const ifaddrs* one = all; one != nullptr && count < found.size(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0 ||
        (one->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    PeerContact::Address address{.family = one->ifa_addr->sa_family};
    if (address.family == AF_INET) {
      std::memcpy(address.bytes.data(),
                  &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, 4);
    } else if (address.family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&v6)) continue;  // means another machine on another interface
      std::memcpy(address.bytes.data(), &v6, address.bytes.size());
    } else {
      continue;
    }
    found[count++] = address;
  }
  return found;
}

std::vector<int> linked_ranks(int rank, std::span<const std::int32_t> nodes) {
  std::map<std::int32_t, std::vector<int>> ranks;  // of each node
  for (std::size_t i = 0; i < nodes.size(); ++i) ranks[nodes[i]].push_back(static_cast<int>(i));
  std::vector<int> linked;
  if (ranks.size() < 2) return linked;
  for (auto node = ranks.begin(); node != ranks.end(); ++node) {
    const auto after = std::next(node) == ranks.end() ? ranks.begin() : std::next(node);
    for (std::size_t place = 0; place < node->second.size(); ++place) {
      const int from = node->second[place];
      const int to = after->second[std::min(place, after->second.size() - 1)];
      if (from == rank) linked.push_back(to);
      if (to == rank) linked.push_back(from);
    }
  }
  std::ranges::sort(linked);
  linked.erase(std::unique(linked.begin(), linked.end()), linked.end());
  return linked;
}

PeerLinker::PeerLinker() {
  std::random_device random;
  contact_.word = (std::uint64_t{random()} << 32) | random();
  contact_.addresses = own_addresses();
  listener_ = listen_at(AF_INET6, contact_.port);
  if (!listener_.is_open()) listener_ = listen_at(AF_INET, contact_.port);
}

std::vector<PeerLink> PeerLinker::connect(int rank, std::span<const int> peers,
                                          std::span<const PeerContact> contacts,
                                          std::chrono::milliseconds limit) {
  return Handshakes(listener_.number(), rank, peers, contacts).run(limit);
}

}  // namespace moesaic
