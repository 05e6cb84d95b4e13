#pragma once

#include <cstdint>
#include <span>

#include "comm/mpi_handles.h"

namespace moesaic {

/// From so many bytes on the ranks share a sum's work.
inline constexpr std::size_t kSliceSumFromBytes = 16 * 1024;

/// Some ranks of a group, ascending, and this one among them.
struct SliceRanks {
  std::span<const int> ranks;
  std::size_t self = 0;  // its place there
};

/// values = the sum of the values of all `of`, which call this together: each of them gets all
/// values of one slice, adds them in the order of ranks, and hands out the sums. A rank sends and
/// receives each value at most twice.
template <typename T>
void sum_in_slices(const MpiHandle& comm, const WaitPolicy& policy, const SliceRanks& of,
                   std::span<T> values);
extern template void sum_in_slices(const MpiHandle&, const WaitPolicy&, const SliceRanks&,
                                   std::span<float>);
extern template void sum_in_slices(const MpiHandle&, const WaitPolicy&, const SliceRanks&,
                                   std::span<std::int64_t>);

/// The slice of place `at` among `count`.
template <typename T>
[[nodiscard]] std::span<T> slice_of(std::span<T> values, std::size_t at, std::size_t count) {
  const std::size_t begin = values.size() * at / count;
  return values.subspan(begin, values.size() * (at + 1) / count - begin);
}

}  // namespace moesaic
