#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "comm/communicator.h"
#include "comm/node_map.h"

namespace moesaic {

/// Sums of integers over the ranks of a group, which go on with other work meanwhile. The values of
/// a sum travel as rows of up to three exchanges: to the ranks of a node that add a slice each, as
/// many as the smallest node has; between their like on other nodes; and to all. So a value crosses
/// between two nodes once each way. A sum goes on to its next exchange when later ones are started,
/// at the same place on all ranks, so that all of them start exchanges in one order.
class PendingSums {
 public:
  /// A sum has at most so many values.
  static constexpr std::int64_t kMostValues = std::int64_t{1} << 20;
  /// Memory that sums under way take, of `values` that are summed in turn.
  [[nodiscard]] static std::int64_t most_bytes(std::int64_t values);

  /// Collective, as all calls.
  explicit PendingSums(Communicator& ranks);

  /// Brings the values of all `parts`, one after the other, to their sums over the ranks, whose
  /// parts are of the same sizes. They stay untouched until the sum is done. Returns its number.
  std::int64_t start_sum(std::span<const std::span<std::int64_t>> parts, const RowLabel& label);
  /// Whether the values of a sum are there; changes in start_sum() and finish() alone, at the same
  /// place on all ranks.
  [[nodiscard]] bool is_done(std::int64_t number) const noexcept { return number <= num_done_; }
  /// Returns when all are done.
  void finish();

 private:
  /// One of the exchanges that every sum passes: rows of this rank, and where those go that come.
  struct Road {
    bool adds = true;  // to the values here; else they take their place
    std::vector<std::int32_t> rows;
    std::vector<std::int64_t> counts;    // [ranks]
    std::vector<std::int64_t> expected;  // [ranks]
    std::vector<std::int32_t> places;    // [expected rows]
  };
  struct Sum {
    std::vector<std::span<std::int64_t>> parts;
    RowLabel label;
    Buffer<std::int64_t> values;  // [slices, row_values], zeros behind the last one
    std::int64_t row_values = 0;
    std::size_t road = 0;     // that it is on
    std::int64_t starts = 0;  // of later sums
    PendingRows rows;
  };

  [[nodiscard]] Road empty_road(bool adds) const;
  [[nodiscard]] Road node_road() const;
  [[nodiscard]] Road far_road() const;
  [[nodiscard]] Road last_road() const;
  [[nodiscard]] std::int32_t slice(std::size_t adder, std::size_t node) const {
    return static_cast<std::int32_t>(adder * nodes_.nodes.size() + node);
  }
  void take_values(Sum& sum) const;
  static void give_values(Sum& sum);
  void travel(Sum& sum);
  void arrive(Sum& sum);
  void drop_done();

  std::unique_ptr<Communicator> ranks_;  // of sums alone; null: this rank is alone
  NodeMap nodes_;
  std::size_t adders_ = 1;  // of each node: its first ranks
  std::size_t node_ = 0;    // of this rank
  std::size_t own_ = 0;     // its number there
  std::vector<Road> roads_;
  std::deque<std::unique_ptr<Sum>> under_way_;  // the oldest first
  std::vector<std::unique_ptr<Sum>> spare_;
  std::int64_t num_started_ = 0;
  std::int64_t num_done_ = 0;
};

}  // namespace moesaic
