#pragma once

namespace moesaic::test {

/// True if this CPU has tiles with their bf16 and int8 products and the operating system lets this
/// process use them. The first call asks it to; the permission holds for all threads.
[[nodiscard]] bool cpu_has_amx();

/// Makes AMX instructions work in this process on a CPU without them: from now on each of them
/// traps (SIGILL), is decoded where it stands and executed on tiles that each thread has for
/// itself. Does nothing if cpu_has_amx(), or if it was called before.
///
/// Emulated are the instructions of AMX-TILE, AMX-BF16 and AMX-INT8 with the results of hardware,
/// bit for bit (NaNs may carry other bits). Where hardware would fault, the reason and the tile
/// shapes are printed and the process dies by SIGILL. Any other illegal instruction goes to the
/// handler that SIGILL had before.
///
/// A trap costs microseconds; AMX instructions that follow one another share one. CPUID keeps
/// saying that there is no AMX. In gdb: handle SIGILL nostop noprint pass.
void install_amx_emulator();

}  // namespace moesaic::test
