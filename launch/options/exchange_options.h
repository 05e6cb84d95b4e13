#pragma once

#include <cstdint>

#include "src/moe/moe_options.h"

namespace moesaic {

/// How choices get to their experts and results back.
struct ExchangeOptions {
  std::int64_t defer = 0;
  WireForm wire = WireForm::exact;
  HalfBatches half_batches = HalfBatches::automatic;
};

}  // namespace moesaic
