#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/model_copies.h"

namespace moesaic::test {

/// A way in which a checkpoint can be broken, and what is to be said about it.
struct BrokenModel {
  std::string name;
  std::function<void(const std::string& directory)> break_it;
  int exit_code = 3;
  std::vector<std::string> texts;   // all stand in the error line
  std::string base = "demo-model";  // directory in tests/data that is copied and broken
};

/// GoogleTest's way to name a parameter.
inline void PrintTo(const BrokenModel& model, std::ostream* out) {
  *out << model.name;
}

[[nodiscard]] const std::vector<BrokenModel>& broken_models();

}  // namespace moesaic::test
