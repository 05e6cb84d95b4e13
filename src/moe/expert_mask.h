#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// Some experts of a model, by layer and global id: those that are to be on GPUs.
class ExpertMask {
 public:
  /// None. `experts`: [layers] how many each layer has, 0 if it is of another kind.
  explicit ExpertMask(std::vector<std::int64_t> experts);

  [[nodiscard]] static ExpertMask all(std::vector<std::int64_t> experts);
  /// `count` of each layer, or all that it has, spread evenly over the ids: so ranks that have as
  /// many experts have as many of these, within one, and which these are does not depend on ranks.
  [[nodiscard]] static ExpertMask spread(std::vector<std::int64_t> experts, std::int64_t count);
  /// {"LAYER": [id, ...], ...}. Throws Error{file} that names layer and id for those that the model
  /// does not have and for an id that stands twice.
  [[nodiscard]] static ExpertMask read(std::vector<std::int64_t> experts, const Json& file);

  [[nodiscard]] bool contains(std::int64_t layer, std::int64_t expert) const {
    return chosen_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
  }
  void add(std::int64_t layer, std::int64_t expert) {
    chosen_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)] = true;
  }
  [[nodiscard]] std::int64_t num_layers() const noexcept { return std::ssize(chosen_); }
  /// Of a layer.
  [[nodiscard]] std::int64_t num_experts(std::int64_t layer) const {
    return std::ssize(chosen_[static_cast<std::size_t>(layer)]);
  }

 private:
  std::vector<std::vector<bool>> chosen_;  // [layers][experts]
};

}  // namespace moesaic
