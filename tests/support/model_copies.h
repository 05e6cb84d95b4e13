#pragma once

#include <cstddef>
#include <string>

namespace moesaic::test {

/// Copies a directory of tests/data to `directory`.
void copy_model(const std::string& base, const std::string& directory);

/// Writes NaN over the first `count` elements of a bf16 tensor.
void damage_tensor(const std::string& directory, const std::string& name, std::size_t count);

}  // namespace moesaic::test
