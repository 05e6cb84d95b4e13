#include "comm/peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace moesaic {

PeerWatch::PeerWatch(std::vector<PeerLink> links, Tell tell)
    : links_(std::move(links)), tell_(std::move(tell)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_.is_open()) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no more threads: then nobody watches
  }
}

PeerWatch::~PeerWatch() {
  stop();
  pass_on({Note::Kind::goes});
  for (const PeerLink& link : links_) {
    // To close with something unread would take the note back.
    ::shutdown(link.socket.number(), SHUT_WR);
    std::array<char, 64> rest;
    while (::recv(link.socket.number(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
    }
  }
}

void PeerWatch::say_failing() noexcept {
  stop();
  pass_on({Note::Kind::fails});
}

void PeerWatch::stop() noexcept {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

void PeerWatch::pass_on(Note note) noexcept {
  for (const PeerLink& link : links_) {
    (void)::send(link.socket.number(), &note, sizeof note, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

/// Until there is nobody to watch. The links stay: those that are closed look lost.
void PeerWatch::run() {
  std::vector<pollfd> files;
  while (!links_.empty()) {
    files.assign(1, {stop_.number(), POLLIN, 0});
    for (const PeerLink& link : links_) files.push_back({link.socket.number(), POLLIN, 0});
    if (::poll(files.data(), files.size(), -1) < 0) continue;  // a signal
    if (files[0].revents != 0) return;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (files[i + 1].revents != 0 && !hear(links_[i])) return;
    }
    std::erase_if(links_, [](const PeerLink& link) { return !link.socket.is_open(); });
  }
}

/// Takes what has come on a link; returns whether to watch on.
bool PeerWatch::hear(PeerLink& link) {
  Note note;
  const auto bytes = ::recv(link.socket.number(), &note, sizeof note, MSG_WAITALL);
  if (bytes < 0 && errno == EINTR) return true;
  if (bytes != sizeof note) return lose(link, bytes < 0 ? errno : 0);
  if (note.kind == Note::Kind::goes) {
    link.socket = Descriptor();
    return true;
  }
  if (note.kind == Note::Kind::has_lost) lost_rank_ = note.rank;
  pass_on(note);
  return false;
}

/// The end of a process closes its links, or resets them if it has not read all.
bool PeerWatch::lose(PeerLink& link, int error) {
  link.socket = Descriptor();
  const bool has_ended = error == 0 || error == ECONNRESET || error == EPIPE;
  tell_(link.rank, has_ended ? Loss::has_ended : Loss::does_not_answer);
  if (!has_ended) return true;
  lost_rank_ = link.rank;
  pass_on({Note::Kind::has_lost, link.rank});
  return false;
}

}  // namespace moesaic
