#include "comm/mpi_slice_sum.h"

#include <algorithm>
#include <vector>

namespace moesaic {
namespace {

constexpr int kSliceTag = 1024;  // row exchanges use tags from 2048 on

}  // namespace

template <typename T>
void sum_in_slices(const MpiHandle& comm, const WaitPolicy& policy, const SliceRanks& of,
                   std::span<T> values) {
  const std::size_t count = of.ranks.size();
  const std::span<T> mine = slice_of(values, of.self, count);
  std::vector<T> gathered(mine.size() * count);  // [ranks, mine]
  const auto part_of = [&](std::size_t at) { return slice_of(std::span(gathered), at, count); };
  std::ranges::copy(mine, part_of(of.self).begin());

  MpiRequests gather(comm);
  for (std::size_t at = 0; at < count; ++at) {
    if (at == of.self) continue;
    gather.receive(of.ranks[at], kSliceTag, std::as_writable_bytes(part_of(at)));
  }
  for (std::size_t step = 1; step < count; ++step) {
    const std::size_t to = (of.self + step) % count;
    gather.send(of.ranks[to], kSliceTag, std::as_bytes(slice_of(values, to, count)));
  }
  gather.wait(policy, "sum");

  std::ranges::copy(part_of(0), mine.begin());
  for (std::size_t at = 1; at < count; ++at) {
    const std::span<const T> theirs = part_of(at);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += theirs[i];
  }
  MpiRequests spread(comm);
  for (std::size_t step = 1; step < count; ++step) {
    const std::size_t to = (of.self + step) % count;
    const std::size_t from = (of.self + count - step) % count;
    spread.receive(of.ranks[from], kSliceTag + 1,
                   std::as_writable_bytes(slice_of(values, from, count)));
    spread.send(of.ranks[to], kSliceTag + 1, std::as_bytes(mine));
  }
  spread.wait(policy, "sum");
}

template void sum_in_slices(const MpiHandle&, const WaitPolicy&, const SliceRanks&,
                            std::span<float>);
template void sum_in_slices(const MpiHandle&, const WaitPolicy&, const SliceRanks&,
                            std::span<std::int64_t>);

}  // namespace moesaic
