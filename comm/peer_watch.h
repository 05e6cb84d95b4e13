#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "comm/peer_links.h"

namespace moesaic {

/// Sees at once, in a thread of its own that sleeps, when a link breaks to a rank that has not said
/// that it goes. The first to see that pass it on, since ranks that end because of it break links
/// too; so nobody blames these.
class PeerWatch {
 public:
  enum class Loss { has_ended, does_not_answer };
  /// Called in that thread: once for a rank that has ended, as long as no other rank has passed
  /// such a loss on; for each whose machine does not answer, which may come back.
  using Tell = std::function<void(int rank, Loss loss)>;

  PeerWatch(std::vector<PeerLink> links, Tell tell);
  /// This rank goes, in order: its peers do not watch it any more.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// This rank goes and the job with it: nobody watches anybody any more.
  void say_failing() noexcept;
  /// The rank of the job that has ended, whoever has seen it, or -1.
  [[nodiscard]] int lost_rank() const noexcept { return lost_rank_.load(); }

 private:
  /// What is said on a link.
  struct Note {
    enum class Kind : std::int32_t { goes, fails, has_lost };
    Kind kind = Kind::goes;
    std::int32_t rank = -1;  // that is lost
  };
  void run();
  bool hear(PeerLink& link);
  bool lose(PeerLink& link, int error);
  void pass_on(Note note) noexcept;
  void stop() noexcept;

  std::vector<PeerLink> links_;  // of the thread, while it runs
  Tell tell_;
  std::atomic<int> lost_rank_ = -1;
  Descriptor stop_;  // readable: the thread is to end
  std::thread thread_;
};

}  // namespace moesaic
