#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/gpu/ptx_machine/machine.h"
#include "tests/gpu/ptx_machine/program.h"
#include "tests/gpu/ptx_machine/shared_memory.h"

namespace moesaic::ptx {

inline constexpr int kWarpLanes = 32;
/// Generic addresses of shared memory are those from here on.
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;

/// What the warps of a block share.
struct BlockState {
  const Kernel* kernel = nullptr;
  const Launch* launch = nullptr;
  std::span<const std::byte> parameters{};
  DeviceMemory* memory = nullptr;
  int chip = 0;  // 90 for sm_90
  Counters* counters = nullptr;
  SharedMemory shared{};
};

/// Thirty-two lanes with their registers. Lanes at the lowest instruction go first, which joins
/// those that parted.
class Warp {
 public:
  explicit Warp(BlockState& block) : block_(block) {}

  /// At the kernel's begin, as warp `index` of block (x, y).
  void begin(unsigned index, unsigned x, unsigned y);
  /// Goes on until all lanes have left or wait at a barrier.
  void run();
  [[nodiscard]] bool waits() const noexcept { return waiting_ != 0; }
  [[nodiscard]] bool has_left() const noexcept { return live_ == 0; }
  void pass_barrier() noexcept { waiting_ = 0; }

  // For operations.
  [[nodiscard]] std::uint64_t* slot(std::int32_t index) noexcept {
    return registers_.data() + static_cast<std::size_t>(index) * kWarpLanes;
  }
  [[nodiscard]] BlockState& block() noexcept { return block_; }
  [[nodiscard]] unsigned index() const noexcept { return index_; }
  /// Throws unless all 32 lanes are there.
  void require_all(std::uint32_t lanes) const;

  /// A cp.async that has not landed.
  struct Copy {
    std::uint64_t to;
    std::uint64_t from;
    std::size_t bytes;
    std::size_t num_read;  // zeros follow
    std::uint32_t group;   // that closed it, or the open one
  };
  std::array<std::vector<Copy>, kWarpLanes> copies{};
  std::array<std::uint32_t, kWarpLanes> open_group{};

 private:
  /// The lanes at the lowest instruction; false if none can go on.
  bool select();
  void part(std::uint32_t lanes, int pc);
  [[nodiscard]] std::uint32_t guarded(const Instruction& instruction);
  void step(const Instruction& instruction);
  void branch(const Instruction& instruction, std::uint32_t lanes);

  BlockState& block_;
  std::vector<std::uint64_t> registers_;
  std::array<int, kWarpLanes> lane_pc_{};
  unsigned index_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t waiting_ = 0;
  std::uint32_t active_ = 0;
  int pc_ = 0;
  int next_pc_ = 0;     // the lowest of the lanes that are not active
  bool moved_ = false;  // lanes are to be selected anew
};

}  // namespace moesaic::ptx
