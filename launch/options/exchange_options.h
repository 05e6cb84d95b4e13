#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/moe/moe_options.h"

namespace moesaic {

/// How choices get to their experts and results back.
struct ExchangeOptions {
  std::int64_t defer = 0;
  WireForm wire = WireForm::exact;
  std::string wires = "exact";  // of bench exchange, with commas
  Combine combine = Combine::ordered;
  HalfBatches half_batches = HalfBatches::automatic;
  std::string placement = "contiguous";    // or round_robin, or a file of record_load
  std::optional<std::string> record_load;  // where to write it
  std::int64_t check_rows = 0;             // each such exchange is checked; 0: none
  std::optional<std::string> trace_dir;    // where ranks tell their last exchanges if the job fails
};

}  // namespace moesaic
