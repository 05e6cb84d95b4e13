// Work that is captured once and launched again and again: what it keeps, and what it refuses.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/cuda/row_moves.h"
#include "src/moe/device_graphs.h"
#include "tests/gpu/fake_gpu.h"

namespace moesaic {
namespace {

constexpr std::int64_t kGraphRows = 3;
constexpr std::int64_t kGraphRowBytes = 16;
constexpr std::int64_t kGraphBytes = kGraphRows * kGraphRowBytes;

/// Rows that are picked on a GPU by a graph: up, picked and down again.
class DeviceGraphs : public testing::Test {
 protected:
  DeviceGraphs() {
    const std::vector<std::int32_t> rows = {2, 0, 2};
    std::memcpy(host_list_.data(), rows.data(), rows.size() * 4);
    device_.upload(list_.address(), host_list_.data(), list_.bytes());
    wait();
  }

  void ask_for_rows() {
    device_.upload(from_.address(), host_from_.data(), kGraphBytes);
    moves_.gather({.from = from_.address(),
                   .to = to_.address(),
                   .rows = list_.address(),
                   .count = kGraphRows,
                   .row_bytes = kGraphRowBytes});
    device_.download(host_to_.data(), to_.address(), kGraphBytes);
  }
  void wait() {
    device_.mark();
    device_.wait_for_mark(60);
  }
  void fill(char first) {
    for (std::int64_t i = 0; i < kGraphBytes; ++i) {
      host_from_.data()[i] = static_cast<std::byte>(first + i / kGraphRowBytes);
    }
  }
  /// The first letters of the rows that came down.
  [[nodiscard]] std::string rows() const {
    std::string letters;
    for (std::int64_t row = 0; row < kGraphRows; ++row) {
      letters += static_cast<char>(host_to_.data()[row * kGraphRowBytes]);
    }
    return letters;
  }
  /// The message of the error with which a capture ends.
  std::string refusal(const std::function<void()>& work) {
    try {
      (void)device_.capture([&] {
        ask_for_rows();
        work();
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Device device_{fake_driver(), 0, device_images()};
  DeviceRowMoves moves_{device_};
  PinnedBuffer host_list_ = device_.allocate_pinned(kGraphRows * 4);
  PinnedBuffer host_from_ = device_.allocate_pinned(kGraphBytes);
  PinnedBuffer host_to_ = device_.allocate_pinned(kGraphBytes);
  DeviceBuffer list_ = device_.allocate(kGraphRows * 4);
  DeviceBuffer from_ = device_.allocate(kGraphBytes);
  DeviceBuffer to_ = device_.allocate(kGraphBytes);
};

TEST_F(DeviceGraphs, run_when_they_are_launched_with_what_memory_has_then) {
  fill('a');
  std::memset(host_to_.data(), '-', static_cast<std::size_t>(kGraphBytes));
  const DeviceGraph graph = device_.capture([&] { ask_for_rows(); });
  wait();
  EXPECT_EQ(rows(), "---");
  device_.launch(graph);
  wait();
  EXPECT_EQ(rows(), "cac");
  fill('p');
  device_.launch(graph);
  wait();
  EXPECT_EQ(rows(), "rpr");
}

TEST_F(DeviceGraphs, keep_the_parameters_of_kernels) {
  fill('a');
  const DeviceGraph graph = device_.capture([&] { ask_for_rows(); });
  const std::vector<std::int32_t> others = {1, 1, 1};
  std::memcpy(host_list_.data(), others.data(), others.size() * 4);
  const DeviceBuffer elsewhere = device_.allocate(kGraphRows * 4);
  device_.upload(elsewhere.address(), host_list_.data(), elsewhere.bytes());
  list_ = DeviceBuffer();  // its address is in the graph
  EXPECT_THROW(
      {
        device_.launch(graph);
        wait();
      },
      Error);
}

TEST_F(DeviceGraphs, refuse_what_waits) {
  const std::string unsupported = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
  const auto expect_refused = [&](const std::function<void()>& work, const std::string& call) {
    const std::string message = refusal(work);
    EXPECT_NE(message.find(call), std::string::npos) << message;
    EXPECT_NE(message.find(unsupported), std::string::npos) << message;
  };
  expect_refused([&] { (void)device_.allocate(64); }, "cuMemAlloc on GPU 0");
  expect_refused([&] { (void)device_.allocate_pinned(64); }, "cuMemAllocHost on GPU 0");
  expect_refused([&] { wait(); }, "kernel gather of rows/rows on GPU 0");
  std::vector<std::byte> pageable(16);
  expect_refused([&] { device_.upload(from_.address(), pageable.data(), 16); },
                 "cuMemcpyHtoDAsync on GPU 0");
  expect_refused([&] { (void)device_.kernel("rows/nvfp4", "round_rows"); }, "kernels rows/nvfp4");
  // A call that cannot say no is noticed at the end.
  DeviceBuffer spare = device_.allocate(16);
  const std::string message = refusal([&] { spare = DeviceBuffer(); });
  EXPECT_NE(message.find("cuStreamEndCapture on GPU 0"), std::string::npos) << message;
  EXPECT_NE(message.find("CAPTURE_INVALIDATED"), std::string::npos) << message;
  // The GPU goes on.
  fill('a');
  ask_for_rows();
  wait();
  EXPECT_EQ(rows(), "cac");
}

/// What is counted before it is taken is what is taken.
TEST_F(DeviceGraphs, take_the_memory_that_was_counted) {
  for (const Nvfp4Activations activations : {Nvfp4Activations::bf16, Nvfp4Activations::nvfp4}) {
    const DeviceGraphShape shape = {
        .expert = {.hidden = 64, .width = 48, .activations = activations}, .topk = 3, .experts = 9};
    const std::int64_t before = device_.free_bytes();
    const DeviceGraphMemory memory(device_, shape);
    EXPECT_EQ(before - device_.free_bytes(), shape.device_bytes());
    EXPECT_GE(shape.pinned_bytes(), memory.host_inputs.bytes() + memory.host_sums.bytes());
    EXPECT_GE(memory.inputs.bytes(), memory.inputs_of(DeviceGraphMemory::kMostInputs, 3).end);
    for (const std::vector<int>& sizes : {std::vector<int>{8}, std::vector<int>{8, 32, 128}}) {
      for (std::int64_t inputs = 1; inputs <= DeviceGraphMemory::kMostInputs; inputs *= 2) {
        const cuda::TileKinds kinds = tile_kinds(sizes, {.inputs = inputs, .topk = 3, .mlps = 9});
        EXPECT_LE(num_tiles(kinds) * static_cast<std::int64_t>(sizeof(cuda::MlpTile)),
                  memory.tiles.bytes())
            << inputs;
      }
    }
  }
  EXPECT_THROW(DeviceGraphMemory(device_, {.expert = {}, .topk = 1, .experts = 513}), Error);
}

TEST_F(DeviceGraphs, name_their_kernels_in_errors) {
  const DeviceGraph graph = device_.capture([&] { ask_for_rows(); });
  from_ = DeviceBuffer();
  device_.launch(graph);
  try {
    wait();
    ADD_FAILURE() << "memory that is gone was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kernel gather of rows/rows on GPU 0"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace moesaic
