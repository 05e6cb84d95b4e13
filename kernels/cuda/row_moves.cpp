#include "kernels/cuda/row_moves.h"

#include "base/error.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/row_arguments.h"

namespace moesaic {
namespace {

constexpr std::string_view kRowModule = "rows/rows";
constexpr std::int64_t kWordBytes = 16;

}  // namespace

DeviceRowMoves::DeviceRowMoves(Device& device)
    : device_(device),
      gather_(device.kernel(kRowModule, "gather")),
      combine_(device.kernel(kRowModule, "combine")) {}

void DeviceRowMoves::gather(const Gather& what) {
  if (what.count == 0) return;
  cuda::GatherArguments arguments = {.from = pointer_to<const void>(what.from),
                                     .to = pointer_to<void>(what.to),
                                     .rows = pointer_to<const std::int32_t>(what.rows),
                                     .row_words = narrow<std::int32_t>(what.row_bytes / kWordBytes),
                                     .unused = 0};
  device_.launch(gather_, a_block_each(what.count), &arguments);
}

void DeviceRowMoves::combine(const Sum& what) {
  if (what.tokens == 0) return;
  cuda::CombineArguments arguments = {.results = pointer_to<const float>(what.results),
                                      .places = pointer_to<const std::int32_t>(what.places),
                                      .weights = pointer_to<const float>(what.weights),
                                      .y = pointer_to<float>(what.y),
                                      .hidden = narrow<std::int32_t>(what.hidden),
                                      .topk = narrow<std::int32_t>(what.topk)};
  device_.launch(combine_, a_block_each(what.tokens), &arguments);
}

}  // namespace moesaic
