#include "comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>  // memfd_create
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "comm/own_memory.h"

namespace moesaic {
namespace {

constexpr const char* kDevShm = "/dev/shm";

std::string path_of(const SharedSegment::Name& name) {
  if (name.home == SharedSegment::Home::anonymous) {
    return fmt::format("/proc/{}/fd/{}", name.pid, name.number);
  }
  return fmt::format("{}/moesaic-{}-{}", kDevShm, name.pid, name.number);
}

[[noreturn]] void fail_with_errno(const std::string& what) {
  fail(ErrorKind::resource, "shared memory: {}: {}", what, std::strerror(errno));
}

std::uint64_t inode_of(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

/// Refuses early what would end in a kill or a bus error when the memory is touched.
void check_space(SharedSegment::Home home, std::int64_t bytes) {
  const MemoryLimit limit = memory_limit();
  require(bytes <= limit.available_bytes, ErrorKind::resource,
          "shared memory: {} needed, {} available ({})", format_bytes(bytes),
          format_bytes(limit.available_bytes), limit.source);
  struct statvfs status {};
  if (home != SharedSegment::Home::dev_shm || statvfs(kDevShm, &status) != 0) return;
  const auto free_bytes = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
  require(bytes <= free_bytes, ErrorKind::resource,
          "shared memory: {} needed, {} free in {} (in a container: --shm-size)",
          format_bytes(bytes), format_bytes(free_bytes), kDevShm);
}

int create_file(SharedSegment::Name& name) {
  if (name.home == SharedSegment::Home::anonymous) {
    return name.number = memfd_create("moesaic", MFD_CLOEXEC);
  }
  int file = -1;
  do {  // a process that was killed may have left a file of the same name
    file = ::open(path_of(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (file < 0 && errno == EEXIST && ++name.number > 0);
  return file;
}

/// Makes the file so long, and takes the space where it may be short; false sets errno.
bool resize(int file, SharedSegment::Home home, std::int64_t bytes) {
  if (home != SharedSegment::Home::dev_shm || bytes == 0) return ftruncate(file, bytes) == 0;
  do {  // a signal may end it, whose handler has been called then
    errno = posix_fallocate(file, 0, bytes);
  } while (errno == EINTR);
  return errno == 0;
}

}  // namespace

SharedSegment SharedSegment::create(Home home, std::int64_t bytes) {
  require(bytes >= 0, ErrorKind::internal, "a shared segment of {} bytes", bytes);
  check_space(home, bytes);
  Name name{home, getpid(), 0, 0, bytes};
  const int file = create_file(name);
  if (file < 0) fail_with_errno("cannot create " + path_of(name));
  SharedSegment segment(name, file, true);
  if (!resize(file, home, bytes)) fail_with_errno("no room for " + format_bytes(bytes));
  segment.name_.inode = inode_of(file);
  segment.map();
  return segment;
}

SharedSegment SharedSegment::open(const Name& name) {
  const std::string path = path_of(name);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail_with_errno("cannot open " + path);
  SharedSegment segment(name, file, false);
  require(inode_of(file) == name.inode, ErrorKind::resource,
          "shared memory: {} is not the segment of the peer", path);
  segment.map();
  return segment;
}

bool SharedSegment::exists(const Name& name) noexcept {
  struct stat status {};
  return stat(path_of(name).c_str(), &status) == 0 && status.st_ino == name.inode;
}

void SharedSegment::map() {
  if (name_.bytes > 0) {
    pages_ = PageMapping::of_file(static_cast<std::size_t>(name_.bytes), file_);
    if (!pages_) fail_with_errno("cannot map " + format_bytes(name_.bytes));
  }
  if (!is_linked_) close(std::exchange(file_, -1));
}

void SharedSegment::unlink() noexcept {
  if (!std::exchange(is_linked_, false)) return;
  if (name_.home == Home::dev_shm) ::unlink(path_of(name_).c_str());
  close(std::exchange(file_, -1));
}

SharedSegment::~SharedSegment() {
  unlink();
  if (file_ >= 0) close(file_);
}

void SharedSegment::swap(SharedSegment& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(pages_, other.pages_);
  std::swap(file_, other.file_);
  std::swap(is_linked_, other.is_linked_);
}

namespace {

class SegmentMemory final : public SharedMemory {
 public:
  /// All ranks take some of its pages, so that these are spread over their NUMA nodes.
  SegmentMemory(SharedSegment segment, const Communicator& node) : segment_(std::move(segment)) {
    take_huge_pages(segment_.bytes(),
                    {static_cast<std::size_t>(node.rank()), static_cast<std::size_t>(node.size())});
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return segment_.bytes(); }

 private:
  SharedSegment segment_;
};

}  // namespace

std::string first_refusal(Communicator& ranks, const std::function<void()>& attempt) {
  std::array<char, 256> reason{};
  std::int64_t first = 0;  // counted from the end, so that max finds it
  try {
    attempt();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    std::string_view(error.what()).copy(reason.data(), reason.size() - 1);
    first = ranks.size() - ranks.rank();
  }
  ranks.max(std::span(&first, 1));
  if (first == 0) return "";
  ranks.broadcast(std::as_writable_bytes(std::span(reason)),
                  ranks.size() - static_cast<int>(first));
  return reason.data();
}

SharedSegment share_segment(Communicator& node, std::int64_t bytes, SharedSegment::Home home) {
  SharedSegment segment;
  std::string refusal = first_refusal(node, [&] {
    if (node.rank() == 0) segment = SharedSegment::create(home, bytes);
  });
  if (refusal.empty()) {
    SharedSegment::Name name = segment.name();
    node.broadcast(std::as_writable_bytes(std::span(&name, 1)), 0);
    refusal = first_refusal(node, [&] {
      if (node.rank() != 0) segment = SharedSegment::open(name);
    });
  }
  segment.unlink();
  require(refusal.empty(), ErrorKind::resource, "{}", refusal);
  return segment;
}

std::shared_ptr<SharedMemory> allocate_shared_segment(Communicator& node, std::int64_t bytes) {
  if (node.size() == 1) return std::make_shared<OwnMemory>(bytes);
  std::string first_reason;
  try {
    return std::make_shared<SegmentMemory>(
        share_segment(node, bytes, SharedSegment::Home::anonymous), node);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    first_reason = error.what();
  }
  try {
    return std::make_shared<SegmentMemory>(share_segment(node, bytes, SharedSegment::Home::dev_shm),
                                           node);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    fail(ErrorKind::resource, "{}; then, in {}: {}", first_reason, kDevShm, error.what());
  }
}

std::unique_ptr<Communicator> sharing_memory(std::unique_ptr<Communicator> node) {
  try {
    (void)allocate_shared_segment(*node, 1);
    return node;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
  }
  return node->split(node->rank(), 0);
}

}  // namespace moesaic
