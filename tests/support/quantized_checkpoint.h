#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/format.h"

namespace moesaic {

/// Writes a copy of the checkpoint `directory` (one file, weights by expert) with those matrices
/// quantised to `layout` whose names `chosen` accepts, as the tools that make such checkpoints
/// store them; for int4, which none does, the numbers that its codes are for, in f32.
void quantize_checkpoint(const std::string& directory, const Layout& layout,
                         const std::function<bool(std::string_view name)>& chosen,
                         const std::string& out);

/// Writes a copy with the numbers that codes of `layout` would stand for, in f32, in place of the
/// matrices of `stacks`, each of which is quantised as one matrix: a name, or names of matrices
/// that stand one below the other.
void round_checkpoint(const std::string& directory, const Layout& layout,
                      const std::vector<std::vector<std::string>>& stacks, const std::string& out);

/// Adds tensors of one f32 to such a copy.
void add_scalars(const std::string& directory, const std::map<std::string, float>& scalars);

/// Matrices of routed experts.
[[nodiscard]] bool is_expert_weight(std::string_view name);

}  // namespace moesaic
