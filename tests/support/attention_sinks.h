#pragma once

#include <string>
#include <vector>

#include "src/model/family.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// Qwen3-MoE whose heads have sinks and whose even layers have a window: a family that only tests
/// know, of kinds that production code has. `sinks` false: without them.
[[nodiscard]] std::vector<Family> families_with_sinks(bool sinks = true);

/// A checkpoint of that family, of 3 layers of 6 heads: another one's of tests/data/models, with
/// these sinks in every layer beside.
class SinkCheckpoint {
 public:
  static constexpr std::int64_t kWindow = 1100;

  explicit SinkCheckpoint(const std::vector<float>& sinks);
  [[nodiscard]] std::string directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace moesaic::test
