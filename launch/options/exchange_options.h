#pragma once

#include <cstdint>

namespace moesaic {

/// How choices get to their experts and results back.
struct ExchangeOptions {
  std::int64_t defer = 0;
};

}  // namespace moesaic
