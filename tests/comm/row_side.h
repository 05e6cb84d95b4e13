#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/row_memory.h"

/// Exchanges whose every byte all ranks know.
namespace moesaic::conformance {

/// Fills `bytes` with what row `row` of `rank`'s matrix holds in exchange `exchange`.
void fill_row(int exchange, int rank, std::int64_t row, std::span<std::byte> bytes);

/// Who sends which rows to whom, and how wide they are: the same on every rank.
struct Exchange {
  int number = 0;
  std::int64_t row_bytes = 8;
  std::int64_t stride_bytes = 8;
  std::int64_t tag_bytes = 0;
  std::int64_t matrix_rows = 0;
  bool later = false;     // rows are written after the start
  bool in_place = false;  // the matrix is in memory that ranks of the node see
  std::vector<std::vector<std::vector<std::int32_t>>> rows;  // [sender][receiver] row numbers

  Exchange(int its_number, int size)
      : number(its_number),
        rows(static_cast<std::size_t>(size),
             std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(size))) {}
};

/// Of many kinds: nothing at all, one receiver, ragged, rows for many ranks, tags, rows that are
/// written later.
[[nodiscard]] Exchange random_exchange(int number, int size, std::mt19937& random);

/// This rank's side of an exchange; owns what must stay untouched until it is over, but for the
/// matrix where it is given `memory` for that.
class Side {
 public:
  Side(Communicator& comm, Exchange exchange, RowMemory* memory = nullptr);

  /// Every second one does not know what to expect.
  void start();
  /// Writes rows that come later, unless that has been done.
  void write_rows();
  void wait();
  [[nodiscard]] bool is_done() { return pending_.is_done(); }
  /// Every byte that has come.
  void verify() const;

 private:
  [[nodiscard]] const std::vector<std::int32_t>& sent_by(int peer) const {
    return exchange_.rows[static_cast<std::size_t>(peer)][static_cast<std::size_t>(comm_.rank())];
  }
  void write_row(std::int64_t row);

  Communicator& comm_;
  Exchange exchange_;
  std::vector<std::byte> own_;
  std::unique_ptr<RowMemory> in_place_;
  std::span<std::byte> matrix_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> expected_;
  PendingRows pending_;
  ReceivedRows received_;
};

}  // namespace moesaic::conformance
