#pragma once

#include <string>
#include <vector>

#include "src/model/family.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// Qwen3-MoE whose even layers are linear recurrences, a kind of mixer that only tests know:
/// y = out s, s = decay * s + in x, with a state of its own for each sequence and channel. Their
/// weights are those that a checkpoint has for attention: q_proj, o_proj, half of q_norm.
[[nodiscard]] std::vector<Family> families_with_recurrence();

/// A checkpoint of that family: another one's of tests/data/models.
class RecurrentCheckpoint {
 public:
  RecurrentCheckpoint();
  [[nodiscard]] std::string directory() const { return directory_.path(); }
  /// The same weights as transformers reads them.
  [[nodiscard]] static std::string plain_directory();

 private:
  TemporaryDirectory directory_;
};

}  // namespace moesaic::test
