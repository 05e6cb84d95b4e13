// libFuzzer: any tensors as a quantised matrix. The input chooses the configuration, a codec's
// tensors, what is wrong with their dtypes and shapes, their data, and a slice. What opens must
// read any of its rows inside the file and pack, or refuse the data; memory errors are the
// sanitizers' to find.
#include <fuzzer/FuzzedDataProvider.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "kernels/weight_format.h"
#include "src/checkpoint/matrix_source.h"
#include "tests/support/temporary_directory.h"

namespace {

using moesaic::DType;

constexpr std::string_view kConfigs[] = {
    "{}",
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}})",
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 48]}})",
    R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}})",
    R"({"quantization_config": {"quant_method": "gptq", "sym": true, "group_size": -1}})",
    R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}})"};
constexpr DType kTypes[] = {DType::u8,      DType::i8,  DType::i32,  DType::i64, DType::f8_e4m3,
                            DType::f8_e8m0, DType::f16, DType::bf16, DType::f32, DType::f8_e5m2};

/// A dimension of a tensor that belongs to a matrix [N, K].
struct Dimension {
  enum Of { rows, cols, fixed } of = fixed;
  std::int64_t part = 1;  // rows / part and cols / part are rounded up
};
using Dimensions = std::vector<Dimension>;
constexpr auto kRows = Dimension::rows;
constexpr auto kCols = Dimension::cols;
constexpr auto kSize = Dimension::fixed;

struct Part {
  std::string_view end;
  DType dtype;
  Dimensions shape;
};
using Recipe = std::vector<Part>;

/// What every codec reads; the input then changes it here and there.
const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {{"weight", DType::bf16, {{kRows, 1}, {kCols, 1}}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale_inv", DType::f32, {{kRows, 128}, {kCols, 128}}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}},
       {"scale", DType::f8_e8m0, {{kRows, 32}, {kCols, 32}}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale", DType::f32, {{kRows, 128}, {kSize, 1}, {kCols, 128}, {kSize, 1}}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale", DType::bf16, {{kRows, 1}, {kSize, 1}}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}}, {"weight_scale", DType::f32, {}}},
      {{"weight", DType::f8_e4m3, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale", DType::u8, {{kRows, 1}, {kCols, 32}}}},
      {{"weight_packed", DType::u8, {{kRows, 1}, {kCols, 2}}},
       {"weight_scale", DType::f8_e4m3, {{kRows, 1}, {kCols, 16}}},
       {"weight_global_scale", DType::f32, {{kSize, 1}}}},
      {{"weight", DType::u8, {{kRows, 1}, {kCols, 2}}},
       {"weight_scale", DType::f8_e4m3, {{kRows, 1}, {kCols, 32}}},
       {"weight_scale_2", DType::f32, {}}},
      {{"weight_packed", DType::u8, {{kRows, 1}, {kCols, 2}}},
       {"weight_scale", DType::u8, {{kRows, 1}, {kCols, 32}}}},
      {{"weight", DType::i8, {{kRows, 1}, {kCols, 2}}},
       {"scale", DType::f8_e8m0, {{kRows, 1}, {kCols, 32}}}},
      {{"blocks", DType::u8, {{kRows, 1}, {kCols, 32}, {kSize, 16}}},
       {"scales", DType::u8, {{kRows, 1}, {kCols, 32}}}},
      {{"weight", DType::i8, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale", DType::bf16, {{kRows, 1}, {kSize, 1}}}},
      {{"weight", DType::i8, {{kRows, 1}, {kCols, 1}}},
       {"weight_scale", DType::bf16, {{kRows, 1}, {kCols, 32}}}},
      {{"weight_packed", DType::i32, {{kRows, 1}, {kCols, 4}}},
       {"weight_scale", DType::bf16, {{kRows, 1}, {kSize, 1}}}},
      {{"weight_packed", DType::i32, {{kRows, 1}, {kCols, 8}}},
       {"weight_scale", DType::bf16, {{kRows, 1}, {kCols, 64}}},
       {"weight_g_idx", DType::i32, {{kCols, 1}}}},
      {{"weight_packed", DType::i32, {{kRows, 1}, {kCols, 8}}},
       {"weight_scale", DType::f32, {{kRows, 1}, {kCols, 32}}},
       {"weight_zero_point", DType::i32, {{kRows, 8}, {kCols, 32}}}},
      {{"weight_packed", DType::i32, {{kRows, 1}, {kCols, 8}}},
       {"weight_scale", DType::f32, {{kRows, 1}, {kSize, 1}}},
       {"weight_shape", DType::i64, {{kSize, 2}}}},
      {{"weight", DType::u8, {{kRows, 2}, {kCols, 1}}},
       {"weight_scale", DType::f32, {{kRows, 1}, {kCols, 128}}}},
      {{"qweight", DType::i32, {{kCols, 8}, {kRows, 1}}},
       {"qzeros", DType::i32, {{kCols, 32}, {kRows, 8}}},
       {"scales", DType::f16, {{kCols, 32}, {kRows, 1}}},
       {"g_idx", DType::i32, {{kCols, 1}}}},
      {{"qweight", DType::i32, {{kCols, 1}, {kRows, 8}}},
       {"qzeros", DType::i32, {{kCols, 64}, {kRows, 8}}},
       {"scales", DType::f16, {{kCols, 64}, {kRows, 1}}}}};
  return all;
}

struct Matrix {
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// A directory that lives as long as the process.
const std::string& directory() {
  static const moesaic::test::TemporaryDirectory made;
  static const std::string path = made.path();
  return path;
}

void write_file(const std::string& name, std::string_view text) {
  std::ofstream(directory() + name, std::ios::binary | std::ios::trunc) << text;
}

/// What is asked of the input now and then; never once it is used up.
bool rarely(FuzzedDataProvider& data) {
  return data.remaining_bytes() > 0 && data.ConsumeIntegral<std::uint8_t>() > 240;
}

std::vector<std::int64_t> pick_shape(FuzzedDataProvider& data, const Part& part,
                                     const Matrix& matrix) {
  std::vector<std::int64_t> shape;
  if (matrix.experts > 0 && !rarely(data)) shape.push_back(matrix.experts);
  for (const Dimension& dimension : part.shape) {
    const std::int64_t base = dimension.of == kRows ? matrix.rows : matrix.cols;
    std::int64_t size = (base + dimension.part - 1) / dimension.part;
    if (dimension.of == kSize) size = dimension.part;
    if (rarely(data)) size = data.ConsumeIntegralInRange<std::int64_t>(0, 2 * size);
    shape.push_back(size);
  }
  if (!shape.empty() && rarely(data)) shape.pop_back();
  return shape;
}

/// Data of a tensor: groups of inputs in or out of order, or some bytes again and again.
std::string pick_data(FuzzedDataProvider& data, std::string_view end, std::int64_t size) {
  const auto mode = data.ConsumeIntegralInRange(0, 3);
  std::string bytes;
  if (end.ends_with("g_idx") && mode > 0) {
    const auto group = data.PickValueInArray<std::int64_t>({32, 64, 128});
    for (std::int64_t i = 0; i < size / 4; ++i) {
      const auto index =
          static_cast<std::int32_t>(mode == 1   ? i / group
                                    : mode == 2 ? i % std::max<std::int64_t>(size / 4 / group, 1)
                                                : -1);
      bytes.append(reinterpret_cast<const char*>(&index), 4);
    }
    bytes.resize(static_cast<std::size_t>(size));
    return bytes;
  }
  std::string some = data.ConsumeBytesAsString(data.ConsumeIntegralInRange<std::size_t>(0, 64));
  if (some.empty()) some = "8";
  while (std::ssize(bytes) < size) bytes += some;
  bytes.resize(static_cast<std::size_t>(size));
  return bytes;
}

/// What stands behind a matrix's name.
std::string name_of(std::string_view end, const Matrix& matrix) {
  if (matrix.experts == 0) return "x." + std::string(end);
  return end == "weight" ? "x" : "x_" + std::string(end);
}

/// The header and data of some tensors.
std::string pick_tensors(FuzzedDataProvider& data, const Matrix& matrix) {
  std::string header;
  std::string bytes;
  const auto& all = recipes();
  for (const Part& part : all[data.ConsumeIntegralInRange<std::size_t>(0, all.size() - 1)]) {
    if (rarely(data)) continue;
    const DType dtype = rarely(data) ? data.PickValueInArray(kTypes) : part.dtype;
    std::int64_t size = moesaic::dtype_bytes(dtype);
    std::string dims;
    for (const std::int64_t dim : pick_shape(data, part, matrix)) {
      size *= dim;
      dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    }
    if (size > 1 << 18) return "";
    header += (header.empty() ? "{\"" : ",\"") + name_of(part.end, matrix) + R"(":{"dtype":")" +
              std::string(moesaic::dtype_name(dtype)) + R"(","shape":[)" + dims +
              R"(],"data_offsets":[)" + std::to_string(bytes.size()) + ",";
    bytes += pick_data(data, part.end, size);
    header += std::to_string(bytes.size()) + "]}";
  }
  if (header.empty()) return "";
  header += "}";
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + bytes;
}

/// Whatever can be done with a source.
void use(const moesaic::MatrixSource& source) {
  for (std::int64_t first = 0; first < source.rows(); first += moesaic::kPanelColumns) {
    const std::int64_t count = std::min(moesaic::kPanelColumns, source.rows() - first);
    unsigned sum = 0;
    source.for_each_bytes(first, count, [&](std::span<const std::byte> bytes) {
      for (const std::byte byte : bytes) sum += std::to_integer<unsigned>(byte);
    });
    if (sum == 1U << 31) std::abort();  // keeps the loop
    std::vector<float> rows(static_cast<std::size_t>(count * source.cols()));
    source.read_rows(first, count, std::span(rows));
    if (!source.is_quantized()) continue;
    for (const std::int32_t k : source.order()) {
      if (k < 0 || k >= source.cols()) std::abort();
    }
    moesaic::QuantizedRows codes;
    source.read_quantized(first, count, codes);
    std::vector<std::byte> panel(
        static_cast<std::size_t>(moesaic::panel_bytes(source.layout(), source.cols())));
    moesaic::pack_panel(source.layout(), codes, panel.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  FuzzedDataProvider data(input, size);
  const std::string_view config = data.PickValueInArray(kConfigs);
  const auto unit = data.PickValueInArray<std::int64_t>({32, 8, 1});
  const Matrix matrix{data.ConsumeIntegralInRange<std::int64_t>(0, 3),
                      data.ConsumeIntegralInRange<std::int64_t>(1, 160),
                      data.ConsumeIntegralInRange<std::int64_t>(1, 256 / unit) * unit};
  moesaic::TensorSlice slice{"x.weight", {matrix.rows, matrix.cols}, 0, matrix.rows, matrix.cols};
  if (matrix.experts > 0) {
    // Whole experts, halves of them, or every other row.
    const std::int64_t expert = data.ConsumeIntegralInRange<std::int64_t>(0, matrix.experts - 1);
    slice = {"x",
             {matrix.experts, matrix.rows, matrix.cols},
             expert * matrix.rows,
             matrix.rows,
             matrix.cols};
    if (data.ConsumeBool()) {
      slice.rows = matrix.rows / 2;
      const bool turns = data.ConsumeBool();
      if (turns) slice.row_step = 2;
      if (data.ConsumeBool()) slice.first_row += turns ? 1 : slice.rows;
    }
  }
  const std::string tensors = pick_tensors(data, matrix);
  if (tensors.empty() || slice.rows == 0) return -1;
  try {
    write_file("/config.json", config);
    write_file("/model.safetensors", tensors);
    const auto checkpoint = moesaic::Checkpoint::open(directory());
    use(moesaic::MatrixSource(checkpoint, slice));
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) {
      std::fprintf(stderr, "%s\n", error.what());
      std::abort();
    }
  }
  return 0;
}
