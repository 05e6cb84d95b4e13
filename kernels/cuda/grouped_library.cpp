#include "kernels/cuda/grouped_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <filesystem>

namespace moesaic {
namespace {

constexpr const char* kGroupedFile = "libmoesaic_cutlass.so";

/// The file that an address of a loaded library is in.
std::string library_file(void* address, const std::string& otherwise) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

std::string GroupedLibrary::usual_file() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = program.parent_path() / kGroupedFile;
  return !error && std::filesystem::exists(beside, error) ? beside.string() : kGroupedFile;
}

std::shared_ptr<const GroupedLibrary> GroupedLibrary::load(std::string& reason,
                                                           const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    reason = dlerror();
    return nullptr;
  }
  std::shared_ptr<GroupedLibrary> grouped(new GroupedLibrary);
#define X(member, symbol, type)                                                           \
  grouped->member = reinterpret_cast<std::type_identity_t<type>*>(dlsym(handle, symbol)); \
  if (grouped->member == nullptr) {                                                       \
    reason = fmt::format("{} has no {}", library, symbol);                                \
    return nullptr;                                                                       \
  }
  MOESAIC_GROUPED_FUNCTIONS(X)
#undef X
  const std::string file =
      library_file(reinterpret_cast<void*>(grouped->interface_version), library);
  if (grouped->interface_version() != cuda::kGroupedInterface) {
    reason = fmt::format(
        "{} was made for another Moesaic: it has version {} of the interface, {} "
        "is needed",
        file, grouped->interface_version(), cuda::kGroupedInterface);
    return nullptr;
  }
  grouped->name_ = fmt::format("{} ({})", grouped->text(), file);
  return grouped;
}

}  // namespace moesaic
