#include "launch/job/start_check.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "launch/job/launcher.h"

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

/// What Open MPI takes of it at a start, where a launcher has not made the job's directory yet.
constexpr std::int64_t kTemporaryBytes = std::int64_t{9} << 20;
/// A launcher that had no room for it hangs, or writes pages of its own errors.
constexpr std::int64_t kLeastTemporaryBytes = std::int64_t{64} << 10;

void require_free_space(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0 || status.f_blocks == 0) return;
  const Launcher launcher;
  if (launcher.is_process_manager()) return;  // which has its own place
  const auto blocks = ::geteuid() == 0 ? status.f_bfree : status.f_bavail;
  const auto free_bytes = static_cast<std::int64_t>(blocks * status.f_frsize);
  const std::int64_t needed = launcher.is_mpirun() ? kLeastTemporaryBytes : kTemporaryBytes;
  require(free_bytes >= needed, ErrorKind::resource,
          "{}: {} are free, MPI needs {} for temporary files: make room, or name another directory "
          "with TMPDIR",
          directory, format_bytes(free_bytes), format_bytes(needed));
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
  require_free_space(directory);
}

/// Under srun without a process manager that this MPI knows, each task would be a job of its own,
/// or end in a page of Open MPI's words.
void require_process_manager() {
  const Launcher launcher;
  if (!launcher.is_none()) return;
  const int tasks = launcher.started().processes;
  require(
      tasks == 1, ErrorKind::usage,
      "srun has started {} tasks without telling MPI of each other (SLURM_STEP_NUM_TASKS is set, "
      "PMIX_RANK is not): use srun --mpi=pmix (srun --mpi=list shows what there is), or mpirun",
      tasks);
}

}  // namespace

void require_ways_to_start() {
  require_process_manager();
  require_address_space();
  require_temporary_files();
}

}  // namespace moesaic
