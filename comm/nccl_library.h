#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "base/cuda_driver.h"

namespace moesaic {

// The part of NCCL (libnccl.so.2) that Moesaic uses, as its header declares it for 2.18 and later.
// So no NCCL is needed to build, and none to run where rows do not travel from GPU to GPU.

using NcclResult = int;
using NcclRanksHandle = struct NcclRanksTag*;  // ncclComm_t

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclInProgress = 7;
inline constexpr int kNcclBytes = 1;  // ncclUint8

/// ncclUniqueId
struct NcclId {
  char bytes[128];
};

/// ncclConfig_t as 2.17 has it; what later versions have behind it stays as it is by default.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = 0;  // calls return at once, and ncclCommGetAsyncError says when they are done
  int cga_cluster_size = INT_MIN;
  int least_blocks = INT_MIN;
  int most_blocks = INT_MIN;
};

/// Member, symbol and type of every function.
#define MOESAIC_NCCL_FUNCTIONS(X)                                                                  \
  X(unique_id, "ncclGetUniqueId", NcclResult(NcclId*))                                             \
  X(init, "ncclCommInitRankConfig", NcclResult(NcclRanksHandle*, int, NcclId, int, NcclConfig*))   \
  X(finalize, "ncclCommFinalize", NcclResult(NcclRanksHandle))                                     \
  X(destroy, "ncclCommDestroy", NcclResult(NcclRanksHandle))                                       \
  X(abort, "ncclCommAbort", NcclResult(NcclRanksHandle))                                           \
  X(async_error, "ncclCommGetAsyncError", NcclResult(NcclRanksHandle, NcclResult*))                \
  X(error_string, "ncclGetErrorString", const char*(NcclResult))                                   \
  X(last_error, "ncclGetLastError", const char*(NcclRanksHandle))                                  \
  X(group_start, "ncclGroupStart", NcclResult())                                                   \
  X(group_end, "ncclGroupEnd", NcclResult())                                                       \
  X(send, "ncclSend", NcclResult(const void*, std::size_t, int, int, NcclRanksHandle, CudaStream)) \
  X(receive, "ncclRecv", NcclResult(void*, std::size_t, int, int, NcclRanksHandle, CudaStream))

/// The functions of an NCCL that is loaded while the program runs. It stays loaded: it has threads
/// of its own.
class NcclLibrary {
 public:
  /// Loads libnccl.so.2, or another library with its functions. Null, with the reason, which names
  /// the file, if there is none, if it is too old, or if it lacks a function.
  [[nodiscard]] static std::shared_ptr<const NcclLibrary> load(
      std::string& reason, const std::string& library = "libnccl.so.2");

  /// "2.28.9"
  [[nodiscard]] const std::string& version_text() const noexcept { return version_; }
  /// Where it was found.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

#define X(member, symbol, type) std::type_identity_t<type>* member = nullptr;
  MOESAIC_NCCL_FUNCTIONS(X)
#undef X

 private:
  NcclLibrary() = default;

  std::string version_;
  std::string path_;
};

}  // namespace moesaic
