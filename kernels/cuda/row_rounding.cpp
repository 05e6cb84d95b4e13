#include "kernels/cuda/row_rounding.h"

#include "base/error.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/nvfp4_rows.h"

namespace moesaic {
namespace {

constexpr std::string_view kRoundingModule = "rows/nvfp4";

cuda::RoundArguments arguments_of(const DeviceRowRounding::Rows& rows) {
  return {.from = pointer_to<const std::uint16_t>(rows.from),
          .rounded = nullptr,
          .records = nullptr,
          .row_scales = nullptr,
          .count = pointer_to<const std::int32_t>(rows.there),
          .depth = narrow<std::int32_t>(rows.depth),
          .row_records = narrow<std::int32_t>(row_record_bytes(rows.depth) / cuda::kRecordBytes),
          .input_scale = rows.input_scale,
          .unused = 0};
}

}  // namespace

std::int64_t row_record_bytes(std::int64_t depth) noexcept {
  return (depth + cuda::kRecordDepth - 1) / cuda::kRecordDepth * cuda::kRecordBytes;
}

DeviceRowRounding::DeviceRowRounding(Device& device)
    : device_(device),
      round_(device.kernel(kRoundingModule, "round_rows")),
      quantize_(device.kernel(kRoundingModule, "quantize_rows")) {}

void DeviceRowRounding::round(const Rows& rows, CudaAddress to) {
  if (rows.count == 0) return;
  cuda::RoundArguments arguments = arguments_of(rows);
  arguments.rounded = pointer_to<std::uint16_t>(to);
  device_.launch(round_, a_block_each(rows.count), &arguments);
}

void DeviceRowRounding::quantize(const Rows& rows, CudaAddress records, CudaAddress scales) {
  if (rows.count == 0) return;
  cuda::RoundArguments arguments = arguments_of(rows);
  arguments.records = pointer_to<std::uint8_t>(records);
  arguments.row_scales = pointer_to<float>(scales);
  device_.launch(quantize_, a_block_each(rows.count), &arguments);
}

}  // namespace moesaic
