#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace moesaic {

/// The parts of a forward pass that the statistics tell apart. `wait` is time inside exchanges:
/// sending rows to other nodes and waiting for those of other ranks; `dispatch` and `combine` are
/// the own work of planning the exchange and adding the results; `mlp` is the shared expert, or the
/// MLP of a layer without experts.
enum class Phase { attention, route, dispatch, experts, combine, wait, mlp, head };

inline constexpr std::size_t kNumPhases = 8;
inline constexpr std::array<std::string_view, kNumPhases> kPhaseNames = {
    "attention", "route", "dispatch", "experts", "combine", "wait", "mlp", "head"};

/// Seconds a phase.
struct PhaseTimes {
  std::array<double, kNumPhases> seconds{};

  [[nodiscard]] double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
};

/// Adds the time of a scope to one phase.
class PhaseScope {
 public:
  PhaseScope(PhaseTimes& times, Phase phase)
      : seconds_(times[phase]), start_(std::chrono::steady_clock::now()) {}
  ~PhaseScope() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace moesaic
