#include "tests/support/quantized_checkpoint.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "kernels/weight_format.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/matrix_source.h"
#include "src/checkpoint/safetensors_writer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The tensors of a file to be.
struct Tensors {
  std::vector<TensorSpec> specs;
  std::map<std::string, std::vector<std::byte>> data;

  template <typename T>
  void add(const TensorSpec& spec, const std::vector<T>& elements) {
    const auto bytes = std::as_bytes(std::span(elements));
    specs.push_back(spec);
    data[spec.name].assign(bytes.begin(), bytes.end());
  }
  void copy(const TensorView& tensor) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    data[tensor.name].assign(tensor.bytes.begin(), tensor.bytes.end());
  }
  void write(const std::string& directory) const {
    SafetensorsWriter writer(directory + "/model.safetensors", specs);
    for (const auto& [name, bytes] : data) writer.write(name, 0, bytes);
    writer.finish();
  }
};

std::vector<std::uint8_t> packed_nibbles(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4));
  }
  return bytes;
}

/// Eight codes each.
std::vector<std::uint32_t> packed_words(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint32_t> words(codes.size() / 8);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    words[i / 8] |= std::uint32_t{codes[i]} << i % 8 * 4;
  }
  return words;
}

/// The scales of the first row of each block.
std::vector<float> block_scales(const QuantizedRows& rows, std::int64_t block) {
  std::vector<float> scales;
  for (std::int64_t row = 0; row < rows.num_rows; row += block) {
    const auto begin = rows.scales.begin() + row * rows.num_groups;
    scales.insert(scales.end(), begin, begin + rows.num_groups);
  }
  return scales;
}

void add_quantized(const std::string& name, const Layout& layout, const QuantizedRows& rows,
                   float scale, Tensors& out) {
  const std::int64_t n = rows.num_rows;
  const std::int64_t k = rows.depth;
  const std::vector<std::int64_t> groups = {n, rows.num_groups};
  switch (layout.format) {
    case Format::int8:
      out.add({name, DType::i8, {n, k}}, rows.codes);
      return out.add({name + "_scale", DType::f32, {n, 1}}, rows.scales);
    case Format::fp8_channel:
      out.add({name, DType::f8_e4m3, {n, k}}, rows.codes);
      return out.add({name + "_scale", DType::f32, {n, 1}}, rows.scales);
    case Format::fp8_block: {
      const std::vector<float> scales = block_scales(rows, layout.group);
      out.add({name, DType::f8_e4m3, {n, k}}, rows.codes);
      return out.add({name + "_scale_inv",
                      DType::f32,
                      {std::ssize(scales) / rows.num_groups, rows.num_groups}},
                     scales);
    }
    case Format::mxfp8:
      out.add({name, DType::f8_e4m3, {n, k}}, rows.codes);
      return out.add({name + "_scale", DType::u8, groups}, rows.scale_codes);
    case Format::mxfp4:
      out.add({name, DType::u8, {n, k / 2}}, packed_nibbles(rows.codes));
      return out.add({name + "_scale", DType::u8, groups}, rows.scale_codes);
    case Format::nvfp4:
      out.add({name, DType::u8, {n, k / 2}}, packed_nibbles(rows.codes));
      out.add({name + "_scale", DType::f8_e4m3, groups}, rows.scale_codes);
      return out.add({name + "_scale_2", DType::f32, {1}}, std::vector{scale});
    case Format::int4_group:
      out.add({name + "_packed", DType::i32, {n, k / 8}}, packed_words(rows.codes));
      return out.add({name + "_scale", DType::f32, groups}, rows.scales);
    default: {
      std::vector<float> values(static_cast<std::size_t>(n * k));
      dequantize_rows(layout, rows, scale, values);
      return out.add({name, DType::f32, {n, k}}, values);
    }
  }
}

/// All rows of a matrix, quantised as what loads a model does.
struct Quantized {
  QuantizedRows rows;
  float scale = 1;  // of the matrix
};

Quantized quantize_matrix(const Layout& layout, std::span<const float> values, std::int64_t depth) {
  const std::int64_t num_rows = std::ssize(values) / depth;
  MatrixScales scales(layout, num_rows, depth);
  scales.add_rows(0, values);
  Quantized quantized;
  quantize_rows(layout, {.values = values, .first_row = 0, .num_rows = num_rows, .depth = depth},
                &scales, quantized.rows);
  quantized.scale = scales.matrix_scale();
  return quantized;
}

void add_values(const MatrixSource& source, std::vector<float>& values) {
  const std::size_t begin = values.size();
  values.resize(begin + static_cast<std::size_t>(source.rows() * source.cols()));
  source.read_rows(0, source.rows(), std::span(values).subspan(begin));
}

void quantize(const TensorView& tensor, const Layout& layout, Tensors& out) {
  const MatrixSource source(tensor);
  std::vector<float> values;
  add_values(source, values);
  const Quantized quantized = quantize_matrix(layout, values, source.cols());
  add_quantized(tensor.name, layout, quantized.rows, quantized.scale, out);
}

/// Matrices that stand one below the other.
void add_rounded(const std::vector<const TensorView*>& stack, const Layout& layout, Tensors& out) {
  std::vector<float> values;
  for (const TensorView* tensor : stack) add_values(MatrixSource(*tensor), values);
  const Quantized quantized = quantize_matrix(layout, values, stack.front()->shape[1]);
  dequantize_rows(layout, quantized.rows, quantized.scale, values);
  auto at = values.begin();
  for (const TensorView* tensor : stack) {
    const auto end = at + tensor->shape[0] * tensor->shape[1];
    out.add({tensor->name, DType::f32, tensor->shape}, std::vector<float>(at, end));
    at = end;
  }
}

void copy_companions(const std::string& directory, const std::string& out) {
  fs::create_directories(out);
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    if (fs::exists(directory + "/" + name)) fs::copy(directory + "/" + name, out);
  }
}

/// config.json has to tell the size of blocks.
void write_config(const std::string& directory, const Layout& layout, const std::string& out) {
  std::string config = test::read_text(directory + "/config.json");
  if (layout.format == Format::fp8_block) {
    const std::string size = std::to_string(layout.group);
    const bool is_empty = config == "{}";
    config.insert(config.find('{') + 1,
                  "\"quantization_config\": {\"quant_method\": \"fp8\", "
                  "\"weight_block_size\": [" +
                      size + ", " + size + (is_empty ? "]}" : "]},"));
  }
  test::write_text(out + "/config.json", config);
}

}  // namespace

bool is_expert_weight(std::string_view name) {
  return name.find(".experts.") != std::string_view::npos;
}

void quantize_checkpoint(const std::string& directory, const Layout& layout,
                         const std::function<bool(std::string_view name)>& chosen,
                         const std::string& out) {
  copy_companions(directory, out);
  write_config(directory, layout, out);
  Tensors tensors;
  const Checkpoint checkpoint = Checkpoint::open(directory);
  for (const TensorView* tensor : checkpoint.tensors()) {
    if (chosen(tensor->name)) {
      quantize(*tensor, layout, tensors);
    } else {
      tensors.copy(*tensor);
    }
  }
  tensors.write(out);
}

void round_checkpoint(const std::string& directory, const Layout& layout,
                      const std::vector<std::vector<std::string>>& stacks, const std::string& out) {
  copy_companions(directory, out);
  fs::copy(directory + "/config.json", out);
  Tensors tensors;
  const Checkpoint checkpoint = Checkpoint::open(directory);
  for (const std::vector<std::string>& names : stacks) {
    std::vector<const TensorView*> stack;
    for (const std::string& name : names) stack.push_back(checkpoint.find(name));
    add_rounded(stack, layout, tensors);
  }
  for (const TensorView* tensor : checkpoint.tensors()) {
    if (!tensors.data.contains(tensor->name)) tensors.copy(*tensor);
  }
  tensors.write(out);
}

void add_scalars(const std::string& directory, const std::map<std::string, float>& scalars) {
  Tensors tensors;
  const Checkpoint checkpoint = Checkpoint::open(directory);
  for (const TensorView* tensor : checkpoint.tensors()) {
    if (!scalars.contains(tensor->name)) tensors.copy(*tensor);
  }
  for (const auto& [name, value] : scalars) {
    tensors.add({name, DType::f32, {}}, std::vector{value});
  }
  tensors.write(directory);
}

}  // namespace moesaic
