#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "kernels/cuda/grouped_product.h"

namespace moesaic {

/// The library of grouped products, which is loaded while the program runs. It stays loaded: the
/// CUDA runtime in it has state of its own.
class GroupedLibrary {
 public:
  /// Null, with the reason, which names the file, if there is none, if it is none, or if it was
  /// made from other sources.
  [[nodiscard]] static std::shared_ptr<const GroupedLibrary> load(std::string& reason,
                                                                  const std::string& library);
  /// The one that --gpu-kernel cutlass takes unless --cutlass names another: beside the program, or
  /// else where the system looks.
  [[nodiscard]] static std::string usual_file();

  /// "CUTLASS 4.2.0, CUDA 13.0 (/opt/moesaic/lib/libmoesaic_cutlass.so)"
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

#define X(member, symbol, type) std::type_identity_t<type>* member = nullptr;
  MOESAIC_GROUPED_FUNCTIONS(X)
#undef X

 private:
  GroupedLibrary() = default;

  std::string name_;
};

}  // namespace moesaic
