#include "tests/gpu/ptx_machine/warp.h"

#include <fmt/core.h>

#include <bit>
#include <climits>

namespace moesaic::ptx {
namespace {

constexpr std::uint64_t kNeverWritten = 0xdeadbeefdeadbeef;
constexpr std::uint32_t kAllLanes = 0xffffffff;
constexpr std::uint64_t kMostInstructions = std::uint64_t{1} << 32;

}  // namespace

void Warp::begin(unsigned index, unsigned x, unsigned y) {
  const Kernel& kernel = *block_.kernel;
  const Launch& launch = *block_.launch;
  index_ = index;
  registers_.resize(static_cast<std::size_t>(kernel.num_slots) * kWarpLanes, kNeverWritten);
  const std::uint64_t special[kNumSpecialSlots] = {
      0, 0, 0, launch.threads, 1, 1, x, y, 0, launch.grid_x, launch.grid_y, 1, 0};
  for (std::int32_t i = 0; i < kNumSpecialSlots; ++i) std::fill_n(slot(i), kWarpLanes, special[i]);
  for (const auto& [at, value] : kernel.constants) std::fill_n(slot(at), kWarpLanes, value);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    slot(kTidX)[lane] = index * kWarpLanes + lane;
    slot(kLaneId)[lane] = lane;
    copies[lane].clear();
  }
  lane_pc_.fill(0);
  open_group.fill(0);
  live_ = kAllLanes;
  waiting_ = 0;
}

bool Warp::select() {
  const std::uint32_t ready = live_ & ~waiting_;
  if (ready == 0) return false;
  pc_ = INT_MAX;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((ready >> lane & 1) != 0) pc_ = std::min(pc_, lane_pc_[lane]);
  }
  active_ = 0;
  next_pc_ = INT_MAX;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((ready >> lane & 1) == 0) continue;
    if (lane_pc_[lane] == pc_) {
      active_ |= 1U << lane;
    } else {
      next_pc_ = std::min(next_pc_, lane_pc_[lane]);
    }
  }
  moved_ = false;
  return true;
}

void Warp::part(std::uint32_t lanes, int pc) {
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) lane_pc_[lane] = pc;
  }
  moved_ = true;
}

std::uint32_t Warp::guarded(const Instruction& instruction) {
  if (instruction.guard < 0) return active_;
  const std::uint64_t* const predicate = slot(instruction.guard);
  std::uint32_t lanes = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    lanes |= static_cast<std::uint32_t>(predicate[lane] & 1) << lane;
  }
  return active_ & (instruction.guard_negated ? ~lanes : lanes);
}

void Warp::branch(const Instruction& instruction, std::uint32_t lanes) {
  if (lanes == active_ && next_pc_ == INT_MAX) {
    pc_ = instruction.target;
    return;
  }
  part(active_ & ~lanes, pc_ + 1);
  part(lanes, instruction.target);
}

void Warp::step(const Instruction& instruction) {
  const std::uint32_t lanes = guarded(instruction);
  if (lanes == 0) {
    ++pc_;
    return;
  }
  switch (instruction.control) {
    case Control::next:
      instruction.execute(*this, instruction, lanes);
      ++pc_;
      break;
    case Control::branch:
      branch(instruction, lanes);
      break;
    case Control::leave:
      live_ &= ~lanes;
      part(active_ & ~lanes, pc_ + 1);
      break;
    case Control::barrier:
      if (lanes != live_) throw MachineError("not all lanes of the warp are at the barrier");
      waiting_ = lanes;
      part(lanes, pc_ + 1);
      break;
  }
  if (!moved_ && pc_ >= next_pc_) part(active_, pc_);
}

void Warp::require_all(std::uint32_t lanes) const {
  if (lanes != kAllLanes) {
    throw MachineError(fmt::format("only {} of 32 lanes meet here", std::popcount(lanes)));
  }
}

void Warp::run() {
  const std::vector<Instruction>& code = block_.kernel->code;
  std::uint64_t executed = 0;
  while (select()) {
    while (!moved_) {
      if (pc_ >= static_cast<int>(code.size())) throw MachineError("the kernel has no end");
      const Instruction& instruction = code[static_cast<std::size_t>(pc_)];
      ++executed;
      try {
        step(instruction);
      } catch (const MachineError& error) {
        throw MachineError(fmt::format("line {} ({}), block {},{}, warp {}: {}", instruction.line,
                                       instruction.text, *slot(kCtaidX), *slot(kCtaidY), index_,
                                       error.what()));
      }
      if (executed > kMostInstructions) throw MachineError("the kernel does not end");
    }
  }
  if (block_.counters != nullptr) block_.counters->instructions += executed;
}

}  // namespace moesaic::ptx
