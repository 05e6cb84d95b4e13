// Preloaded into a program: notes in the file MOESAIC_DISK_LOG what it does to files and names
// below MOESAIC_DISK_FOLDER, a line each (tests/launch/watched_disk_test.cpp). It is killed when it
// is about to do the MOESAIC_DISK_KILL-th of these things; from the MOESAIC_DISK_FULL-th on there
// is no room for what wants some.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace {

std::atomic<int> things = 0;

/// Of an open file; "" where it has none.
std::string path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t bytes = ::readlink(link.c_str(), path.data(), path.size());
  return bytes < 0 ? "" : std::string(path.data(), static_cast<std::size_t>(bytes));
}

std::string path_in(int directory, const char* name) {
  return directory == AT_FDCWD || name[0] == '/' ? name : path_of(directory) + "/" + name;
}

bool is_number(const char* variable, int number, bool or_more) {
  const char* text = std::getenv(variable);
  return text != nullptr && (or_more ? number >= std::atoi(text) : number == std::atoi(text));
}

void note(const std::string& line) {
  const char* log = std::getenv("MOESAIC_DISK_LOG");
  if (log == nullptr) return;
  const int file = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  (void)::syscall(SYS_write, file, line.data(), line.size());
  (void)::syscall(SYS_close, file);
}

/// Something that is done to a path, by `call`, which returns -1 and sets errno where it fails. It
/// is noted then, too, but as something that was tried: the numbers are those of the lines.
template <typename Call>
auto doing(const std::string& what, const std::string& path, bool wants_room, const Call& call,
           const std::string& to = "") -> decltype(call()) {
  const char* folder = std::getenv("MOESAIC_DISK_FOLDER");
  const bool has_name = !path.ends_with(" (deleted)");
  if (folder == nullptr || !path.starts_with(folder) || !has_name) return call();
  const int number = ++things;
  if (is_number("MOESAIC_DISK_KILL", number, false)) (void)::kill(::getpid(), SIGKILL);
  const bool is_full = wants_room && is_number("MOESAIC_DISK_FULL", number, true);
  errno = is_full ? ENOSPC : errno;
  const auto result = is_full ? -1 : call();
  const int reason = errno;
  note((result < 0 ? "try to " : "") + what + "\t" + path + (to.empty() ? "" : "\t" + to) + "\n");
  errno = reason;
  return result;
}

template <typename Call>
auto writing(int file, const Call& call) {
  return doing("write", path_of(file), true, call);
}

bool is_there(const std::string& path) {
  return ::syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

int open_in(int directory, const char* name, int flags, mode_t mode) {
  const std::string path = path_in(directory, name);
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_openat, directory, name, flags, mode));
  };
  if ((flags & O_CREAT) != 0 && !is_there(path)) return doing("make", path, true, call);
  if ((flags & O_TRUNC) != 0) return doing("write", path, false, call);
  return call();
}

/// The argument behind the flags, if there is one.
mode_t mode_of(int flags, std::va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

int remove_in(int directory, const char* name, int flags) {
  return doing("remove", path_in(directory, name), false,
               [&] { return static_cast<int>(::syscall(SYS_unlinkat, directory, name, flags)); });
}

int sync(long call, int file) {
  return doing("sync", path_of(file), false,
               [&] { return static_cast<int>(::syscall(call, file)); });
}

}  // namespace

extern "C" {

int open(const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_in(AT_FDCWD, name, flags, mode);
}

int openat(int directory, const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_in(directory, name, flags, mode);
}

int mkdir(const char* name, mode_t mode) noexcept {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_mkdir, name, mode)); };
  return is_there(name) ? call() : doing("make", name, true, call);
}

ssize_t write(int file, const void* data, std::size_t bytes) {
  return writing(file, [&] { return ::syscall(SYS_write, file, data, bytes); });
}

ssize_t writev(int file, const iovec* pieces, int count) {
  return writing(file, [&] { return ::syscall(SYS_writev, file, pieces, count); });
}

ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t at) {
  return writing(file, [&] { return ::syscall(SYS_pwrite64, file, data, bytes, at); });
}

int fallocate(int file, int mode, off_t first, off_t bytes) {
  return writing(
      file, [&] { return static_cast<int>(::syscall(SYS_fallocate, file, mode, first, bytes)); });
}

int ftruncate(int file, off_t bytes) noexcept {
  return writing(file, [&] { return static_cast<int>(::syscall(SYS_ftruncate, file, bytes)); });
}

int fsync(int file) {
  return sync(SYS_fsync, file);
}

int fdatasync(int file) {
  return sync(SYS_fdatasync, file);
}

int rename(const char* from, const char* to) noexcept {
  return doing(
      "rename", from, false, [&] { return static_cast<int>(::syscall(SYS_rename, from, to)); }, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned int flags) noexcept {
  const bool swaps = (flags & RENAME_EXCHANGE) != 0;
  return doing(
      swaps ? "swap" : "rename", path_in(from_directory, from), false,
      [&] {
        return static_cast<int>(
            ::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
      },
      path_in(to_directory, to));
}

int unlink(const char* name) noexcept {
  return remove_in(AT_FDCWD, name, 0);
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  return remove_in(directory, name, flags);
}

int rmdir(const char* name) noexcept {
  return remove_in(AT_FDCWD, name, AT_REMOVEDIR);
}

int remove(const char* name) noexcept {
  struct stat status = {};
  const bool is_directory = ::lstat(name, &status) == 0 && S_ISDIR(status.st_mode);
  return remove_in(AT_FDCWD, name, is_directory ? AT_REMOVEDIR : 0);
}

}  // extern "C"
