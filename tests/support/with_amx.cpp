#include "kernels/cpu_features.h"
#include "tests/support/amx_emulator.h"

// Linked into a test program, this makes AMX kernels run on every CPU that can run the rest of
// their code: in hardware where there is AMX, else in software.

namespace moesaic {
namespace {

const bool amx_is_ready = [] {
  if (test::cpu_has_amx()) return true;
  test::install_amx_emulator();
  assume_amx();
  return true;
}();

}  // namespace
}  // namespace moesaic
