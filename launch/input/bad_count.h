#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace moesaic {

/// Prompts of a file that are bad, and do not keep the others from their results.
class BadCount {
 public:
  void add(const Error& error);
  /// Tells of the first ones why they are bad, and how many of `all` prompts are not `done`: "run".
  void warn(const Log& log, std::int64_t all, std::string_view done) const;
  /// Throws the first error if all are bad.
  void require_a_good_one(std::int64_t all) const;
  [[nodiscard]] std::int64_t prompts() const noexcept { return prompts_; }

 private:
  static constexpr std::size_t kMostTold = 5;

  std::int64_t prompts_ = 0;
  std::vector<Error> first_;
};

}  // namespace moesaic
