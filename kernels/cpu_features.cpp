#include "kernels/cpu_features.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/amx_permission.h"
#include "kernels/kernel_list.h"

namespace moesaic {

namespace {

constexpr std::array<std::string_view, kNumIsas> kNames = {"scalar", "avx2", "avx512",
                                                           "avx512_bf16", "amx"};
#define MOESAIC_VALUE(isa) Isa::isa,
constexpr Isa kBuilt[] = {MOESAIC_ISAS(MOESAIC_VALUE)};
#undef MOESAIC_VALUE
/// An exception among globals, which tests alone set (assume_amx): CPUID cannot tell of AMX in
/// software.
constinit std::atomic<bool> amx_is_assumed = false;

/// Once for the process. The reason if it refuses.
std::string refusal_of_tiles() {
  const int error = cpuid_has_amx() ? ask_for_tiles() : 0;
  if (error == 0) return "";
  return std::string("arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA): ") + std::strerror(error);
}

// __builtin_cpu_supports reads CPUID and, through XGETBV, whether the operating system saves the
// YMM and ZMM registers.
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
      return detect(Isa::avx512) && __builtin_cpu_supports("avx512bf16") != 0 &&
             __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("gfni") != 0 &&
             has_avx512_vnni();
    case Isa::amx:
      return detect(Isa::avx512_bf16) &&
             (amx_is_assumed || (cpuid_has_amx() && amx_refusal().empty()));
  }
  return false;
}

std::vector<Isa> detect_all() {
  __builtin_cpu_init();
  std::vector<Isa> isas;
  for (const Isa isa : kBuilt) {
    if (detect(isa)) isas.push_back(isa);
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

bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512vnni") != 0;
}

const std::string& amx_refusal() {
  static const std::string refusal = refusal_of_tiles();
  return refusal;
}

void assume_amx() {
  amx_is_assumed = true;
}

bool prefers_avx512_bf16() {
  return is_supported(Isa::avx512_bf16) && __builtin_cpu_is("amd") != 0;
}

}  // namespace moesaic
