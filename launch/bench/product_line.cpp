#include "launch/bench/product_line.h"

#include <fmt/core.h>

#include <algorithm>

#include "launch/options/choices.h"

namespace moesaic {

ResultLine product_line(const ProductFigures& measured, const ProductRoofs& roofs) {
  const auto [columns, depth] = measured.shape;
  const double operations = 2.0 * static_cast<double>(measured.rows) *
                            static_cast<double>(columns) * static_cast<double>(depth);
  const auto bytes = static_cast<double>(measured.matrix_bytes);
  const double compute = operations / roofs.operations_per_second;
  const double memory = bytes / roofs.bytes_per_second;
  return {{"op", std::string(choice_name(measured.op)), true},
          {"shape", measured.shape.name(), true},
          {"format", layout_name(measured.layout), true},
          {"isa", roofs.isa, true},
          {"rows", fmt::format("{}", measured.rows)},
          {"threads", fmt::format("{}", roofs.threads)},
          {"us", short_number(measured.seconds * 1e6)},
          {"gops", short_number(operations / measured.seconds / 1e9)},
          {"weight_gbs", short_number(bytes / measured.seconds / 1e9)},
          {"roof", compute > memory ? "compute" : "memory", true},
          {"roof_share", short_number(std::max(compute, memory) / measured.seconds)},
          {"error", fmt::format("{:.2e}", measured.error)}};
}

}  // namespace moesaic
