#pragma once

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"

namespace moesaic::test {

inline constexpr const char* kFootprint = "4M";

inline Arguments bench_kernels(const Arguments& more) {
  return joined(
      {"bench", "kernels", "--shapes", "40x96", "--seconds", "0.001", "--footprint", kFootprint},
      more);
}

inline Json parse_table(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "table");
}

inline std::string keys_of(const std::string& csv) {
  return csv.substr(0, csv.find('\n'));
}

}  // namespace moesaic::test
