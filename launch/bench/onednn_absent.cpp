// In the place of onednn_rival.cpp where oneDNN is not installed.

#include "base/error.h"
#include "launch/bench/onednn_rival.h"

namespace moesaic {

struct OneDnnRival::State {};

bool OneDnnRival::is_built_in() noexcept {
  return false;
}

void OneDnnRival::require_built_in() {
  fail(ErrorKind::usage,
       "--rival onednn: this program was built without oneDNN; install it (tools/packages.sh "
       "--rivals, on Debian libdnnl-dev), run cmake again and build");
}

OneDnnRival::OneDnnRival(Format, const MatrixShape&, std::span<const std::byte>,
                         std::span<std::byte>) {
  require_built_in();
}
OneDnnRival::~OneDnnRival() = default;
void OneDnnRival::prepare(std::span<const std::byte>, std::int64_t, int) {}
void OneDnnRival::run() {}
const std::byte* OneDnnRival::output() const noexcept {
  return nullptr;
}
std::int64_t OneDnnRival::packed_bytes() const noexcept {
  return 0;
}

}  // namespace moesaic
