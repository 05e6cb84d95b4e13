#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace moesaic {
namespace {

/// The oldest version: from then on groups of a communicator that does not block can be given up.
constexpr int kOldestNccl = 21800;

/// 22809 is 2.28.9.
std::string nccl_version_name(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// The file that an address of a loaded library is in.
std::string file_of(void* address, const std::string& otherwise) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

std::shared_ptr<const NcclLibrary> NcclLibrary::load(std::string& reason,
                                                     const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    reason = fmt::format("no NCCL: {}", dlerror());
    return nullptr;
  }
  auto* const get_version = reinterpret_cast<NcclResult (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  if (get_version == nullptr) {
    reason = fmt::format("{} is not NCCL: it has no ncclGetVersion", library);
    return nullptr;
  }
  std::shared_ptr<NcclLibrary> nccl(new NcclLibrary);
  nccl->path_ = file_of(reinterpret_cast<void*>(get_version), library);
  int version = 0;
  get_version(&version);
  nccl->version_ = nccl_version_name(version);
  if (version < kOldestNccl) {
    reason = fmt::format("NCCL {} ({}) is too old: {} is needed", nccl->version_, nccl->path_,
                         nccl_version_name(kOldestNccl));
    return nullptr;
  }
#define X(member, symbol, type)                                                          \
  nccl->member = reinterpret_cast<std::type_identity_t<type>*>(dlsym(handle, symbol));   \
  if (nccl->member == nullptr) {                                                         \
    reason = fmt::format("NCCL {} ({}) has no {}", nccl->version_, nccl->path_, symbol); \
    return nullptr;                                                                      \
  }
  MOESAIC_NCCL_FUNCTIONS(X)
#undef X
  return nccl;
}

}  // namespace moesaic
