#include "launch/job/start_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/memory.h"

namespace moesaic {
namespace {

/// Open MPI maps some 100 libraries, and does not look whether it could.
constexpr rlim_t kLeastAddressSpace = rlim_t{512} << 20;

void require_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  require(limit.rlim_cur >= kLeastAddressSpace, ErrorKind::resource,
          "the address space is limited to {} (ulimit -v): MPI alone needs {} to start",
          format_bytes(static_cast<std::int64_t>(limit.rlim_cur)),
          format_bytes(static_cast<std::int64_t>(kLeastAddressSpace)));
}

/// Where MPI makes its directory for this job.
std::string temporary_directory() {
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

void require_temporary_files() {
  const std::string directory = temporary_directory();
  std::string path = directory + "/moesaic-XXXXXX";
  const bool made = ::mkdtemp(path.data()) != nullptr;  // sets errno
  require(
      made, ErrorKind::resource,
      "{}: cannot be written: {}; MPI needs a directory for temporary files, which TMPDIR names",
      directory, std::strerror(errno));
  ::rmdir(path.c_str());
}

}  // namespace

void require_room_to_start() {
  require_address_space();
  require_temporary_files();
}

}  // namespace moesaic
