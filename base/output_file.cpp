#include "base/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

/// What to do about a full disk.
std::string no_room_advice(int file) {
  struct statvfs status {};
  const bool is_known = ::fstatvfs(file, &status) == 0;
  const std::string room =
      is_known ? fmt::format(" ({} bytes are free)", status.f_bavail * status.f_frsize) : "";
  return room + "; make room and start again, or write to another disk";
}

/// rename() would take a pipe or a device away, /dev/null too, and says of a directory that it is
/// busy.
void require_file_or_nothing(const std::string& path) {
  struct stat status {};
  const bool is_other = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  require(!is_other, ErrorKind::resource, "{}: cannot be written: {}", path,
          S_ISDIR(status.st_mode) ? "it is a directory" : "not a regular file");
}

/// What waits for the disk at most: seconds, where it is slow.
constexpr std::int64_t kUnsyncedBytes = std::int64_t{256} << 20;

/// Between the name of a file and the process that writes it anew.
constexpr std::string_view kPart = ".part-";

}  // namespace

OutputFile::OutputFile(const std::string& path, Mode mode, std::string shown)
    : shown_(std::move(shown)) {
  const int flags = mode == Mode::create ? O_CREAT | O_TRUNC : mode == Mode::kept ? O_CREAT : 0;
  // Without a reader a pipe would be waited for.
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (descriptor_ < 0 && errno != ENXIO) refused("cannot be written");
  struct stat status {};
  const bool is_known = descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0;
  const bool has_places = is_known && ::lseek(descriptor_, 0, SEEK_CUR) == 0;
  if (has_places && (mode != Mode::kept || S_ISREG(status.st_mode))) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  fail(ErrorKind::resource, "{}: cannot be written: not a regular file", shown_);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : shown_(std::move(other.shown_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      unsynced_bytes_(other.unsynced_bytes_.load()) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(shown_, other.shown_);
  std::swap(descriptor_, other.descriptor_);
  unsynced_bytes_ = other.unsynced_bytes_.exchange(unsynced_bytes_);
  return *this;
}

void OutputFile::reserve(std::int64_t bytes) {
  if (bytes == 0) return;
  int status = 0;
  do {  // a signal may end it, whose handler has been called then
    status = ::fallocate(descriptor_, 0, 0, bytes);
  } while (status != 0 && errno == EINTR);
  const bool unsupported = status != 0 && (errno == EOPNOTSUPP || errno == ENOSYS);
  if (unsupported) status = ::ftruncate(descriptor_, bytes);
  if (status != 0) refused(fmt::format("cannot reserve {} bytes", bytes));
}

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) const {
  const std::int64_t unsynced = unsynced_bytes_ += std::ssize(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refused(fmt::format("cannot write byte {}", offset));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  if (unsynced >= kUnsyncedBytes) sync();
}

void OutputFile::resize(std::int64_t bytes) const {
  if (::ftruncate(descriptor_, bytes) != 0) refused("cannot be written");
}

bool OutputFile::lock() const noexcept {
  return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void OutputFile::wait_for_lock() const noexcept {
  while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
}

bool OutputFile::is_at(const std::string& path) const noexcept {
  struct stat own {};
  struct stat other {};
  return ::fstat(descriptor_, &own) == 0 && ::stat(path.c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

void OutputFile::sync() const {
  unsynced_bytes_ = 0;
  if (::fsync(descriptor_) != 0) refused("cannot be written");
}

void OutputFile::refused(std::string_view what) const {
  const int reason = errno;
  std::string advice;
  if (reason == EFBIG) advice = " (ulimit -f, or what the file system allows)";
  if (reason == ENOSPC || reason == EDQUOT) advice = no_room_advice(descriptor_);
  fail(ErrorKind::resource, "{}: {}: {}{}", shown_, what, std::strerror(reason), advice);
}

ReplacingFile::ReplacingFile(const std::string& path)
    : path_(path),
      part_(fmt::format("{}{}{}", path, kPart, ::getpid())) {  // others may write it too
  require_file_or_nothing(path);
  file_ = OutputFile(part_, OutputFile::Mode::create, path);
}

ReplacingFile::~ReplacingFile() {
  if (!published_) (void)std::remove(part_.c_str());
}

void ReplacingFile::publish() {
  file_.sync();
  published_ = std::rename(part_.c_str(), path_.c_str()) == 0;
  require(published_, ErrorKind::resource, "{}: cannot be written: {}", path_,
          std::strerror(errno));
  sync_name(path_);
}

std::string_view name_of_part(std::string_view name) noexcept {
  const std::size_t part = name.rfind(kPart);
  if (part == std::string_view::npos) return {};
  const std::string_view process = name.substr(part + kPart.size());
  const bool is_number =
      !process.empty() && process.find_first_not_of("0123456789") == process.npos;
  return is_number ? name.substr(0, part) : std::string_view();
}

void replace_file(const std::string& path, std::string_view text) {
  ReplacingFile file(path);
  file.file().write_at(0, std::as_bytes(std::span(text)));
  file.publish();
}

void require_replaceable(const std::string& path) {
  const ReplacingFile file(path);
}

void require_room(const std::string& directory, std::span<const std::int64_t> file_bytes,
                  std::string_view what) {
  const std::string path = fmt::format("{}/room.part-{}", directory, ::getpid());
  std::vector<OutputFile> files;
  for (const std::int64_t bytes : file_bytes) {
    files.emplace_back(path, OutputFile::Mode::create, fmt::format("{} ({})", directory, what));
    (void)std::remove(path.c_str());  // nothing is left of a file without a name when it is closed
    files.back().reserve(bytes);
  }
}

void sync_directory(const std::string& path) noexcept {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  (void)::fsync(directory);
  ::close(directory);
}

void sync_name(const std::string& path) noexcept {
  const std::size_t slash = path.rfind('/');
  sync_directory(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

}  // namespace moesaic
