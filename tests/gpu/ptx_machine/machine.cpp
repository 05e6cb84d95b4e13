#include "tests/gpu/ptx_machine/machine.h"

#include <fmt/core.h>

#include <memory>

#include "tests/gpu/ptx_machine/warp.h"

namespace moesaic::ptx {
namespace {

constexpr std::size_t kMostShared = 48 * 1024;  // that a launch has without asking for more

using Warps = std::vector<std::unique_ptr<Warp>>;

void run_block(BlockState& state, Warps& warps, unsigned x, unsigned y) {
  state.shared.begin_block(state.kernel->shared_bytes);
  state.memory->begin_block();
  for (unsigned i = 0; i < warps.size(); ++i) warps[i]->begin(i, x, y);
  for (;;) {
    std::size_t waiting = 0;
    for (const auto& warp : warps) {
      warp->run();
      if (warp->waits()) ++waiting;
    }
    if (waiting == 0) return;
    if (waiting != warps.size()) {
      throw MachineError(
          fmt::format("block {},{}: {} of {} warps wait at a barrier, the others "
                      "have ended",
                      x, y, waiting, warps.size()));
    }
    for (const auto& warp : warps) warp->pass_barrier();
    state.shared.pass_barrier();
  }
}

void check_launch(const Kernel& kernel, const Launch& launch, std::size_t parameter_bytes) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw MachineError(text);
  };
  require(parameter_bytes == kernel.parameter_bytes,
          fmt::format("{} bytes of parameters, not {}", kernel.parameter_bytes, parameter_bytes));
  require(
      launch.threads > 0 && launch.threads % kWarpLanes == 0 &&
          launch.threads <= kernel.max_threads,
      fmt::format("blocks of {} threads; it was made for {}", launch.threads, kernel.max_threads));
  require(launch.grid_x > 0 && launch.grid_y > 0, "an empty grid");
  require(launch.grid_y <= 65535, "more than 65535 blocks in y");
  require(kernel.shared_bytes <= kMostShared, "too much shared memory");
}

}  // namespace

void Machine::run(const std::string& kernel, const Launch& launch,
                  std::span<const std::byte> parameters, const Target& target) const {
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end()) throw MachineError("no kernel " + kernel);
  target.memory.begin_launch();
  try {
    check_launch(found->second, launch, parameters.size());
    BlockState state{.kernel = &found->second,
                     .launch = &launch,
                     .parameters = parameters,
                     .memory = &target.memory,
                     .chip = target.chip,
                     .counters = target.counters};
    Warps warps;
    for (unsigned i = 0; i < launch.threads / kWarpLanes; ++i) {
      warps.push_back(std::make_unique<Warp>(state));
    }
    for (unsigned y = 0; y < launch.grid_y; ++y) {
      for (unsigned x = 0; x < launch.grid_x; ++x) run_block(state, warps, x, y);
    }
  } catch (const MachineError& error) {
    throw MachineError(kernel + " " + error.what());
  }
  target.memory.end_launch();
}

}  // namespace moesaic::ptx
