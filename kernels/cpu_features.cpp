#include "kernels/cpu_features.h"

#include <algorithm>
#include <array>

namespace moesaic {

namespace {

constexpr std::array<std::string_view, kNumIsas> kNames = {"scalar", "avx2", "avx512",
                                                           "avx512_bf16"};

// __builtin_cpu_supports reads CPUID and, through XGETBV, whether the operating system saves the
// YMM and ZMM registers. An instruction set whose state has to be asked for (AMX: arch_prctl) would
// ask here as well.
bool detect(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case Isa::avx512:
      return detect(Isa::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0;
    case Isa::avx512_bf16:
      return detect(Isa::avx512) && __builtin_cpu_supports("avx512bf16") != 0;
  }
  return false;
}

std::vector<Isa> detect_all() {
  __builtin_cpu_init();
  std::vector<Isa> isas;
  for (int i = 0; i < kNumIsas; ++i) {
    if (detect(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  return kNames[static_cast<std::size_t>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) noexcept {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Isa>(found - kNames.begin());
}

const std::vector<Isa>& supported_isas() {
  static const std::vector<Isa> isas = detect_all();
  return isas;
}

bool is_supported(Isa isa) {
  const std::vector<Isa>& isas = supported_isas();
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

bool prefers_avx512_bf16() {
  return is_supported(Isa::avx512_bf16) && __builtin_cpu_is("amd") != 0;
}

}  // namespace moesaic
