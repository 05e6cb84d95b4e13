#pragma once

#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/lora/peft_modules.h"

namespace moesaic {

/// Factors of a module of an adapter file, A [ranks, in] and B [out, ranks] with up below gate:
/// those of the file, or copies where it has them in another order.
class ModuleFactors {
 public:
  /// `a`, `b`: what the file has, of the shapes that the module says. `module` may go, they must
  /// outlive this.
  ModuleFactors(const PeftModule& module, const TensorView& a, const TensorView& b);
  ModuleFactors(const ModuleFactors&) = delete;
  ModuleFactors& operator=(const ModuleFactors&) = delete;

  [[nodiscard]] const TensorView& a() const noexcept { return a_; }
  [[nodiscard]] const TensorView& b() const noexcept { return b_; }

 private:
  TensorView a_;
  TensorView b_;
  std::vector<float> a_values_;
  std::vector<float> b_values_;
};

/// What a file has as A and B of a module.
struct FileFactors {
  std::vector<float> a;
  std::vector<float> b;
};

/// The other way round: `a` [ranks, in] and `b` [out, ranks], up below gate, as the file has them.
[[nodiscard]] FileFactors in_file_order(const PeftModule& module, std::vector<float> a,
                                        std::vector<float> b);

}  // namespace moesaic
