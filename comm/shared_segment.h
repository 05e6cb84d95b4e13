#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/page_mapping.h"
#include "comm/communicator.h"

namespace moesaic {

/// Memory that other processes of this node can map as well: zero-filled, mapped from a file that
/// has no name of its own (memfd) or stands in /dev/shm. Move-only.
class SharedSegment {
 public:
  enum class Home : std::uint32_t {
    anonymous,  ///< found by peers through /proc/PID/fd: leaves nothing behind, whatever happens
    dev_shm,    ///< for peers that may not look there (other user namespaces); has to be unlinked
  };
  /// How a peer finds a segment. Trivial, so that it can travel.
  struct Name {
    Home home = Home::anonymous;
    std::int32_t pid = 0;
    std::int32_t number = 0;  // file descriptor, or serial number in /dev/shm
    std::uint64_t inode = 0;  // proof that it is the same file
    std::int64_t bytes = 0;
  };

  SharedSegment() = default;
  /// Throws Error{resource} if there is not enough memory.
  [[nodiscard]] static SharedSegment create(Home home, std::int64_t bytes);
  /// Throws Error{resource} if the segment of a peer cannot be reached from here.
  [[nodiscard]] static SharedSegment open(const Name& name);
  /// Whether its maker still has it. Not if open() fails for want of anything here.
  [[nodiscard]] static bool exists(const Name& name) noexcept;
  SharedSegment(SharedSegment&& other) noexcept { swap(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedSegment();

  [[nodiscard]] const Name& name() const noexcept { return name_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {pages_.data(), static_cast<std::size_t>(name_.bytes)};
  }
  /// After this nobody can open it any more; those who have keep it.
  void unlink() noexcept;

 private:
  SharedSegment(const Name& name, int file, bool is_owner)
      : name_(name), file_(file), is_linked_(is_owner) {}
  void map();
  void swap(SharedSegment& other) noexcept;

  Name name_;
  PageMapping pages_;
  int file_ = -1;
  bool is_linked_ = false;  // only ever by its maker
};

/// Runs `attempt` on every rank and returns, on all of them, the message of the Error{resource} of
/// the first one that throws one; nothing if none does. Collective.
[[nodiscard]] std::string first_refusal(Communicator& ranks, const std::function<void()>& attempt);

/// A segment of `bytes` made by rank 0 of `node`, mapped by all its ranks, and unlinked.
/// Collective; throws Error{resource} on all ranks if it fails on one, with the reason of that one.
[[nodiscard]] SharedSegment share_segment(Communicator& node, std::int64_t bytes,
                                          SharedSegment::Home home);
/// The same in the first home that works.
[[nodiscard]] std::shared_ptr<SharedMemory> allocate_shared_segment(Communicator& node,
                                                                    std::int64_t bytes);
/// `node` if its ranks can see memory together, else this rank alone. Collective.
[[nodiscard]] std::unique_ptr<Communicator> sharing_memory(std::unique_ptr<Communicator> node);

}  // namespace moesaic
