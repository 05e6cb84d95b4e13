// Writes which element of its operands each value of each lane is, for the mma instructions that
// kernels use, and where scales of nvfp4 stand, as CUTLASS's CuTe describes them. Made and compared
// by tools/lane_maps.sh.
//
// usage: lane_maps bf16
//   "A lane value row k", "B lane value column k", "C lane value row column"
// usage: lane_maps nvfp4
//   the same with registers of 8 k, "A lane register row first_k";
//   and "a lane 0 row 0", "b lane 0 column 0": whose scales a lane has
// usage: lane_maps scales
//   "rows depth row group place": of the scale of `group` of 16 k of a row

#include <cstdio>
#include <cstdlib>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm120.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/tensor.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
#include <string_view>

namespace {

/// A layout (lane, value) -> index counts rows first. `width` values that follow each other in k
/// are one register.
template <typename Layout>
void write(char operand, const Layout& layout, int rows, int width = 1) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < static_cast<int>(cute::size<1>(layout)); value += width) {
      const int index = static_cast<int>(layout(lane, value));
      for (int i = 1; i < width; ++i) {
        if (static_cast<int>(layout(lane, value + i)) != index + i * rows) std::abort();
      }
      std::printf("%c %d %d %d %d\n", operand, lane, value / width, index % rows, index / rows);
    }
  }
}

/// Of some rows of a matrix, the last one too.
void write_scales(int rows, int depth) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<16>;
  const auto layout = Config::tile_atom_to_shape_SFA(cute::make_shape(rows, 128, depth, 1));
  for (int row = 0; row < rows; row += row + 7 < rows ? 7 : 1) {
    for (int group = 0; group < depth / 16; ++group) {
      const int place = static_cast<int>(layout(row, 16 * group, 0));
      for (int k = 1; k < 16; ++k) {
        if (static_cast<int>(layout(row, 16 * group + k, 0)) != place) std::abort();
      }
      std::printf("%d %d %d %d %d\n", rows, depth, row, group, place);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "bf16") {
    using Traits = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;
    write('A', Traits::ALayout{}, 16);
    write('B', Traits::BLayout{}, 8);
    write('C', Traits::CLayout{}, 16);
    return 0;
  }
  if (what == "scales") {
    write_scales(384, 128);
    write_scales(300, 320);
    return 0;
  }
  if (what != "nvfp4") {
    std::fputs("usage: lane_maps bf16|nvfp4|scales\n", stderr);
    return 2;
  }
  using Traits = cute::MMA_Traits<cute::SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<
      cute::float_e2m1_t, cute::float_e2m1_t, float, cute::float_ue4m3_t, 16>>;
  write('A', Traits::ALayout{}, 16, 8);
  write('B', Traits::BLayout{}, 8, 8);
  write('C', Traits::CLayout{}, 16);
  write('a', Traits::SFALayout{}, 16, 64);
  write('b', Traits::SFBLayout{}, 8, 64);
}
