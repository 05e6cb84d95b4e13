#pragma once

#include <cstdint>

#include "launch/bench/exchange_bed.h"
#include "launch/job/runtime.h"

namespace moesaic {

/// Microseconds of the slowest rank that a quarter of the runs do not exceed, NaN where there is
/// nothing to do; and what was moved.
struct ExchangeTimes {
  double us = 0;  // plan, rows there and results back
  double us_p99 = 0;
  double dispatch_us = 0;
  double combine_us = 0;
  double memcpy_us = 0;
  double alltoallv_us = 0;
  double stream_us = 0;
  double pingpong_us = 0;
  std::int64_t wrong = 0;       // bytes, of all runs and ranks
  std::int64_t messages = 0;    // of one run, between nodes: of the rank that sent most
  std::int64_t bytes_near = 0;  // of one run and all ranks
  std::int64_t bytes_far = 0;
};

/// Runs an exchange and its rivals in turn, so that what disturbs one disturbs the others, for
/// --seconds. `loads` are those of the exchange's routing. Collective over all ranks.
[[nodiscard]] ExchangeTimes measure_exchange(const Runtime& runtime, MpiRivals& mpi,
                                             const ExchangeBed::Case& what,
                                             const ExchangeLoads& loads);

}  // namespace moesaic
