#pragma once

#include <string>
#include <vector>

#include "launch/options/options.h"

namespace moesaic::test {

inline Command parse(const std::vector<std::string>& arguments,
                     const Environment& environment = {}) {
  return parse_command(arguments, environment);
}

}  // namespace moesaic::test
