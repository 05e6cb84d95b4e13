#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Instruction sets with kernels, from the one that always works to the most special. `avx512_bf16`
/// sums in an order of its own (VDPBF16PS), all others in the tile order (docs/numerics.md). `amx`
/// and `avx512_bf16` mean CPUs that have VNNI, VBMI and GFNI as well: Ice Lake's successors and
/// Zen 4.
enum class Isa { scalar, avx2, avx512, avx512_bf16, amx };

inline constexpr int kNumIsas = 5;

[[nodiscard]] std::string_view isa_name(Isa isa) noexcept;
[[nodiscard]] std::optional<Isa> isa_from_name(std::string_view name) noexcept;

/// What this CPU and this kernel of the operating system can execute, of what kernels are built for
/// (MOESAIC_ISAS); in Isa order, scalar first.
[[nodiscard]] const std::vector<Isa>& supported_isas();
[[nodiscard]] bool is_supported(Isa isa);

/// Whether AVX-512 comes with VNNI (VPDPBUSD).
[[nodiscard]] bool has_avx512_vnni();

/// Why AMX cannot be used although the CPU has it; empty if it can be or there is none.
[[nodiscard]] const std::string& amx_refusal();

/// For tests that execute AMX instructions in software: counts AMX as supported if all else that
/// its kernels use is. To be called before anything asks what is supported.
void assume_amx();

/// True where VDPBF16PS does more multiply-adds a second than two FMAs do (AMD Zen 4 and later). On
/// Intel it runs at half the FMA rate.
[[nodiscard]] bool prefers_avx512_bf16();

}  // namespace moesaic
