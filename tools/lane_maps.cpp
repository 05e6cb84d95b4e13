// Writes which element of its operands each value of each lane is, for the mma instructions that
// kernels use, as CUTLASS's CuTe describes them: "A lane value row k", "B lane value column k",
// "C lane value row column". Made and compared by tools/lane_maps.sh.

#include <cstdio>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/tensor.hpp>

namespace {

/// A layout (lane, value) -> index counts rows first.
template <typename Layout>
void write(char operand, const Layout& layout, int rows) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < static_cast<int>(cute::size<1>(layout)); ++value) {
      const int index = static_cast<int>(layout(lane, value));
      std::printf("%c %d %d %d %d\n", operand, lane, value, index % rows, index / rows);
    }
  }
}

}  // namespace

int main() {
  using Traits = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;
  write('A', Traits::ALayout{}, 16);
  write('B', Traits::BLayout{}, 8);
  write('C', Traits::CLayout{}, 16);
}
