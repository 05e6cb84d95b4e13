#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/communicator.h"

namespace moesaic {

/// The calls that are counted apart. exchange_rows is the start of an exchange, wait_rows the wait
/// for it.
enum class CommCall {
  split,
  barrier,
  broadcast,
  sum,
  max,
  all_gather,
  exchange_counts,
  exchange_rows,
  wait_rows,
  allocate_shared,
};
inline constexpr std::size_t kNumCommCalls = 10;

[[nodiscard]] std::string_view comm_call_name(CommCall call) noexcept;

/// What one rank has spent in its communicators.
struct CommTrace {
  struct Entry {
    std::int64_t calls = 0;
    /// What this rank gave; rows: those sent, with wait_rows those received.
    std::int64_t bytes = 0;
    double seconds = 0;  ///< inside the call, waiting for others included
  };
  std::array<Entry, kNumCommCalls> entries{};

  [[nodiscard]] Entry& operator[](CommCall call) { return entries[static_cast<std::size_t>(call)]; }
  [[nodiscard]] const Entry& operator[](CommCall call) const {
    return entries[static_cast<std::size_t>(call)];
  }
  [[nodiscard]] Entry total() const noexcept;
};

/// `base`, with all its calls and those of communicators split from it entered in `trace`, which
/// must outlive them.
[[nodiscard]] std::unique_ptr<Communicator> make_traced_communicator(
    std::unique_ptr<Communicator> base, CommTrace& trace);

}  // namespace moesaic
