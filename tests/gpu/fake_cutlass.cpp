// A libmoesaic_cutlass.so over the fake driver: grouped products by plain loops from the bytes that
// CUTLASS would read, where it would look for them, in the order of sums that docs/numerics.md
// gives tensor cores. What CUTLASS would not notice is an error here: operands that do not begin
// where they have to, groups of other sizes, layouts of another product, too few of them.
//
//   MOESAIC_FAKE_CUTLASS_INTERFACE   the version of the interface
//   MOESAIC_FAKE_CUTLASS_FAILS       not empty: the reason why no launch succeeds

#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/grouped_product.h"
#include "tests/gpu/fake_stream.h"
#include "tests/gpu/ptx_machine/device_memory.h"
#include "tests/gpu/ptx_machine/tensor_core.h"

using namespace moesaic;
using namespace moesaic::cuda;

namespace {

constexpr std::int64_t kWorkspaceBytes = 300000;
constexpr std::int64_t kStepDepth = 64;

/// What this library has for each group.
struct FakeLayout {
  std::int32_t group;
  std::int32_t outputs;
  std::int32_t depth;
  std::int32_t result_stride;

  bool operator==(const FakeLayout&) const = default;
};

FakeLayout layout_of(const GroupedProduct& product, std::int32_t group) {
  return {group, product.outputs, product.depth, product.result_stride};
}

void expect(bool is_so, const std::string& text) {
  if (!is_so) throw ptx::MachineError("grouped product: " + text);
}

template <typename T>
std::vector<T> read(const void* from, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  fake_cuda_read(reinterpret_cast<CudaAddress>(from), values.data(),
                 count * static_cast<std::int64_t>(sizeof(T)));
  return values;
}

/// Rows of an operand, step by step.
class Operand {
 public:
  Operand(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t depth)
      : codes_(codes), scales_(scales), depth_(depth) {
    expect(reinterpret_cast<CudaAddress>(codes) % 16 == 0, "codes are not aligned");
    expect(reinterpret_cast<CudaAddress>(scales) % 128 == 0, "scales are not aligned");
  }
  [[nodiscard]] std::vector<ptx::ScaledMatrix<1>> row(std::int64_t row) const {
    const auto bytes = read<std::uint8_t>(codes_ + row * depth_ / 2, depth_ / 2);
    std::vector<ptx::ScaledMatrix<1>> steps(static_cast<std::size_t>(depth_ / kStepDepth));
    for (std::int64_t k = 0; k < depth_; ++k) {
      const std::uint8_t two = bytes[static_cast<std::size_t>(k / 2)];
      steps[static_cast<std::size_t>(k / kStepDepth)].codes[0][k % kStepDepth] =
          k % 2 == 0 ? two & 15 : two >> 4;
    }
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const std::int64_t block = row / 128 * std::ssize(steps) + static_cast<std::int64_t>(step);
      const auto four = read<std::uint8_t>(scales_ + block * 512 + row % 32 * 16 + row / 32 % 4 * 4,
                                           4);  // of one row
      std::copy(four.begin(), four.end(), steps[step].scales[0]);
    }
    return steps;
  }

 private:
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  std::int64_t depth_;
};

struct Group {
  GroupShape shape;
  Operand a;
  Operand b;
  float* d;
};

void multiply(const Group& group, std::int64_t result_stride) {
  std::vector<std::vector<ptx::ScaledMatrix<1>>> columns;
  for (std::int64_t column = 0; column < group.shape.outputs; ++column) {
    columns.push_back(group.b.row(column));
  }
  for (std::int64_t row = 0; row < group.shape.rows; ++row) {
    const auto steps = group.a.row(row);
    std::vector<float> sums;
    for (const auto& column : columns) {
      float sum = 0;
      for (std::size_t step = 0; step < steps.size(); ++step) {
        sum = ptx::scaled_sum(steps[step], column[step], sum);
      }
      sums.push_back(sum);
    }
    fake_cuda_write(reinterpret_cast<CudaAddress>(group.d + row * result_stride), sums.data(),
                    std::ssize(sums) * 4);
  }
}

void run(const GroupedProduct& product) {
  const std::vector<char> anything(kWorkspaceBytes, 0x5a);
  fake_cuda_write(reinterpret_cast<CudaAddress>(product.workspace), anything.data(),
                  kWorkspaceBytes);
  const std::int64_t count = product.num_groups;
  const auto shapes = read<GroupShape>(product.lists.shapes, count);
  const auto a = read<const std::uint8_t*>(product.lists.a, count);
  const auto a_scales = read<const std::uint8_t*>(product.lists.a_scales, count);
  const auto b = read<const std::uint8_t*>(product.lists.b, count);
  const auto b_scales = read<const std::uint8_t*>(product.lists.b_scales, count);
  const auto d = read<float*>(product.lists.d, count);
  const auto layouts = read<FakeLayout>(product.layouts, count);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    expect(layouts[i] == layout_of(product, static_cast<std::int32_t>(i)),
           "layouts are of another product");
    expect(shapes[i].outputs == product.outputs && shapes[i].depth == product.depth,
           "a group has other sizes than the product");
    if (shapes[i].rows == 0) continue;
    expect(reinterpret_cast<CudaAddress>(d[i]) % 16 == 0, "results are not aligned");
    multiply({shapes[i], Operand(a[i], a_scales[i], product.depth),
              Operand(b[i], b_scales[i], product.depth), d[i]},
             product.result_stride);
  }
}

std::string fake_setting(const char* name, const std::string& otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : otherwise;
}

}  // namespace

extern "C" {

int moesaic_cutlass_interface() {
  return std::atoi(
      fake_setting("MOESAIC_FAKE_CUTLASS_INTERFACE", std::to_string(kGroupedInterface)).c_str());
}
const char* moesaic_cutlass_text() {
  return "no CUTLASS, plain loops";
}
std::int64_t moesaic_cutlass_workspace_bytes(int) {
  return kWorkspaceBytes;
}
std::int64_t moesaic_cutlass_layout_bytes(int num_groups) {
  return num_groups * static_cast<std::int64_t>(sizeof(FakeLayout));
}
const char* moesaic_cutlass_write_layouts(const GroupedProduct* product, void* out) {
  for (std::int32_t group = 0; group < product->num_groups; ++group) {
    static_cast<FakeLayout*>(out)[group] = layout_of(*product, group);
  }
  return nullptr;
}
std::int64_t moesaic_cutlass_scale_place(const GroupShape*, int, int) {
  return -1;  // CUTLASS's word is wanted
}
const char* moesaic_cutlass_launch(const GroupedProduct* product, void* stream) {
  static const std::string reason = fake_setting("MOESAIC_FAKE_CUTLASS_FAILS", "");
  if (!reason.empty()) return reason.c_str();
  fake_cuda_launch(static_cast<CudaStream>(stream), [copy = *product] { run(copy); });
  return nullptr;
}

}  // extern "C"
