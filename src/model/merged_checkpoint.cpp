#include "src/model/merged_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "src/checkpoint/companion_names.h"
#include "src/checkpoint/matrix_source.h"
#include "src/checkpoint/quantization_config.h"

namespace moesaic {
namespace {

/// Rows that are read, merged and written together.
constexpr std::int64_t kRows = 16;
constexpr std::size_t kCopiedBytes = std::size_t{4} << 20;

std::int64_t bytes_of(const TensorSpec& spec) {
  std::int64_t bytes = dtype_bytes(spec.dtype);
  for (const std::int64_t size : spec.shape) bytes *= size;
  return bytes;
}

bool tells_of_quantisation(std::string_view member) {
  return std::ranges::find(kQuantizationMembers, member) != kQuantizationMembers.end();
}

/// `is_config`: what it tells of quantisation is left out.
std::string json_text(const Json& value, const std::string& indent, bool is_config) {
  if (value.is_null()) return "null";
  if (value.is_string()) return json_quote(value.as_string());
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_integer()) return fmt::format("{}", value.as_int());
  if (value.is_number()) return json_float(value.as_double());
  const std::string deeper = indent + "  ";
  std::string text;
  value.for_each([&](const std::string& key, const Json& member) {
    if (is_config && tells_of_quantisation(key)) return;
    text += text.empty() ? "\n" : ",\n";
    text += deeper;
    if (value.is_object()) text += json_quote(key) + ": ";
    text += json_text(member, deeper, is_config && key == "text_config");
  });
  if (!text.empty()) text += "\n" + indent;
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

/// Rounds a row, and tells whether all of it is still a number.
bool round_row(std::span<const float> values, std::span<BFloat16> out) {
  std::ranges::transform(values, out.begin(), to_bfloat16);
  return std::ranges::all_of(out, [](BFloat16 value) { return std::isfinite(to_float(value)); });
}

/// Where a matrix is if nothing is quantised.
TensorSlice plain_slice(TensorSlice slice) {
  if (!slice.is_across_if_plain) return slice;
  const std::int64_t tensor_rows = slice.shape[1];
  const std::int64_t expert = slice.first_row / tensor_rows;
  slice.first_column = slice.first_row % tensor_rows;
  slice.first_row = expert * slice.cols;
  slice.is_transposed = true;
  std::swap(slice.shape[1], slice.shape[2]);
  return slice;
}

void write_file(const std::string& directory, std::string_view name, const std::string& text) {
  replace_file((std::filesystem::path(directory) / name).string(), text);
}

}  // namespace

MergedCheckpoint::MergedCheckpoint(const Checkpoint& checkpoint, const ModelNames& names,
                                   const AdapterSet& adapters)
    : checkpoint_(checkpoint), adapters_(adapters) {
  add_slices(names);
  add_tensors();
  make_shards();
}

void MergedCheckpoint::add_slices(const ModelNames& names) {
  std::unordered_map<std::string_view, std::int64_t> by_module;
  for (std::int64_t i = 0; i < adapters_.size(); ++i) {
    by_module.emplace(adapters_.spec(i).site.module, i);
  }
  for_each_slice(names, [&](const TensorSlice& slice, bool) {
    slices_[slice.tensor].push_back({.slice = slice});
  });
  for (const LayerNames& layer : names.layers) {
    for (const auto* weights : {&layer.mixer, &layer.feed_forward}) {
      for (const NamedWeight& weight : *weights) {
        for (std::size_t i = 0; i < weight.sites.size(); ++i) {
          const auto found = by_module.find(weight.sites[i].module);
          if (found == by_module.end()) continue;
          const TensorSlice& part = weight.parts[i];
          std::vector<Piece>& pieces = slices_.at(part.tensor);
          if (weight.sites[i].heads > 0) {  // of the whole tensor
            const AdapterSite& site = weight.sites[i];
            pieces.assign(1, {.slice = matrix_slice(part.tensor, site.out, site.in),
                              .adapter = found->second});
            continue;
          }
          std::ranges::find_if(pieces, [&](const Piece& piece) {
            return piece.slice.first_row == part.first_row &&
                   piece.slice.first_column == part.first_column;
          })->adapter = found->second;
        }
      }
    }
  }
}

/// Quantised matrices take the place of the tensors that store them. What else is there is copied,
/// unless the checkpoint is quantised: then it is scales that are not needed any more.
void MergedCheckpoint::add_tensors() {
  const auto exists = [&](std::string_view name) { return checkpoint_.contains(name); };
  std::unordered_set<std::string> used;
  bool is_quantized = false;
  for (auto& [name, pieces] : slices_) {
    const TensorSlice& first = pieces.front().slice;
    const TensorView* const plain = checkpoint_.find(name);
    const bool is_plain = plain != nullptr && !MatrixSource(checkpoint_, first).is_quantized();
    const bool is_adapted =
        std::ranges::any_of(pieces, [](const Piece& piece) { return piece.adapter >= 0; });
    for (std::string& stored : find_stored_names(name, exists).present) {
      used.insert(std::move(stored));
    }
    is_quantized |= !is_plain;
    if (is_plain && !is_adapted) {
      tensors_.push_back({{name, plain->dtype, plain->shape}, plain, {}});
    } else {
      tensors_.push_back(
          {{name, DType::bf16, plain_slice(first).shape}, nullptr, std::move(pieces)});
    }
  }
  for (const TensorView* tensor : checkpoint_.tensors()) {
    if (is_quantized || used.contains(tensor->name)) continue;
    tensors_.push_back({{tensor->name, tensor->dtype, tensor->shape}, tensor, {}});
  }
}

void MergedCheckpoint::make_shards() {
  std::ranges::sort(tensors_, {}, [](const Tensor& tensor) { return tensor.spec.name; });
  std::int64_t shard_bytes = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t bytes = bytes_of(tensors_[i].spec);
    if (shards_.empty() || shard_bytes + bytes > kShardBytes) {
      shards_.emplace_back();
      shard_bytes = 0;
    }
    shards_.back().push_back(i);
    shard_bytes += bytes;
    bytes_ += bytes;
  }
}

std::int64_t MergedCheckpoint::shard_bytes(std::int64_t shard) const {
  std::int64_t bytes = 0;
  for (const std::size_t i : shards_[static_cast<std::size_t>(shard)]) {
    bytes += bytes_of(tensors_[i].spec);
  }
  return bytes;
}

std::string MergedCheckpoint::shard_name(std::int64_t shard) const {
  if (num_shards() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards());
}

void MergedCheckpoint::write_shard(std::int64_t shard, const std::string& directory,
                                   ThreadPool& pool, const Watch& watch) const {
  std::vector<TensorSpec> specs;
  const std::vector<std::size_t>& members = shards_[static_cast<std::size_t>(shard)];
  for (const std::size_t i : members) specs.push_back(tensors_[i].spec);
  Output output{
      .writer = SafetensorsWriter((std::filesystem::path(directory) / shard_name(shard)).string(),
                                  std::move(specs)),
      .pool = pool,
      .watch = watch};
  reading(checkpoint_, [&] {
    for (const std::size_t i : members) write_tensor(tensors_[i], output);
  });
  output.writer.finish();
}

void MergedCheckpoint::write_tensor(const Tensor& tensor, Output& output) const {
  if (tensor.copied != nullptr) return copy_tensor(tensor, output);
  if (!plain_slice(tensor.pieces.front().slice).is_transposed) {
    for (const Piece& piece : tensor.pieces) write_rows(tensor.spec, piece, output);
    return;
  }
  const auto differ = [](const Piece& one, const Piece& other) {
    return plain_slice(one.slice).first_row != plain_slice(other.slice).first_row;
  };
  for (auto first = tensor.pieces.begin(); first != tensor.pieces.end();) {
    const auto last = std::adjacent_find(first, tensor.pieces.end(), differ);
    const auto end = last == tensor.pieces.end() ? last : last + 1;
    write_across(tensor.spec, {first, end}, output);
    first = end;
  }
}

/// Through memory of our own: whether bytes of a mapped file could be read is known of those that
/// the program reads, not of those that the system does.
void MergedCheckpoint::copy_tensor(const Tensor& tensor, Output& output) {
  const std::span<const std::byte> bytes = tensor.copied->bytes;
  for (std::size_t at = 0; at < bytes.size(); at += kCopiedBytes) {
    const auto part = bytes.subspan(at, std::min(kCopiedBytes, bytes.size() - at));
    output.copied.assign(part.begin(), part.end());
    output.writer.write(tensor.spec.name, static_cast<std::int64_t>(at), output.copied);
    output.watch(output.done_bytes += std::ssize(part));
  }
}

/// Up to kRows rows of `piece` from `first` on, with its adapter in them.
std::span<const BFloat16> MergedCheckpoint::merged_rows(const TensorSpec& tensor,
                                                        const Piece& piece, std::int64_t first,
                                                        Output& output) const {
  const std::int64_t cols = piece.slice.cols;
  const std::int64_t count = std::min(kRows, piece.slice.rows - first);
  output.rows.resize(static_cast<std::size_t>(count * cols));
  output.rounded.resize(output.rows.size());
  MatrixSource(checkpoint_, piece.slice).read_rows(first, count, std::span(output.rows));
  output.pool.for_each(count, 1, [&](std::int64_t row) {
    const auto begin = static_cast<std::size_t>(row * cols);
    const std::span values = std::span(output.rows).subspan(begin, static_cast<std::size_t>(cols));
    if (piece.adapter >= 0) merge_row(piece, first + row, values);
    const bool is_finite =
        round_row(values, std::span(output.rounded).subspan(begin, values.size()));
    require(is_finite, ErrorKind::file,
            "tensor \"{}\": {} {}{} has a value that is not finite in bf16: nothing is written",
            tensor.name, piece.slice.is_transposed ? "column" : "row",
            (piece.slice.is_transposed ? piece.slice.first_column : piece.slice.first_row) +
                (first + row) * piece.slice.row_step,
            piece.adapter >= 0 ? ", with the adapter in it," : "");
  });
  output.watch(output.done_bytes += count * cols * 2);
  return output.rounded;
}

void MergedCheckpoint::write_rows(const TensorSpec& tensor, const Piece& piece,
                                  Output& output) const {
  for (std::int64_t first = 0; first < piece.slice.rows; first += kRows) {
    const std::span<const BFloat16> rows = merged_rows(tensor, piece, first, output);
    output.writer.write(tensor.name, (piece.slice.first_row + first) * piece.slice.cols * 2,
                        std::as_bytes(rows));
  }
}

/// The pieces of one expert, which together are rows of the tensor, each some of their columns.
void MergedCheckpoint::write_across(const TensorSpec& tensor, std::span<const Piece> pieces,
                                    Output& output) const {
  const std::int64_t cols = pieces.front().slice.cols;
  const std::int64_t width = tensor.shape.back();
  output.across.resize(static_cast<std::size_t>(cols * width));
  for (const Piece& piece : pieces) {
    const TensorSlice plain = plain_slice(piece.slice);
    for (std::int64_t first = 0; first < plain.rows; first += kRows) {
      const std::span<const BFloat16> rows = merged_rows(tensor, piece, first, output);
      output.pool.for_each(cols, kRows, [&](std::int64_t col) {
        BFloat16* const to = output.across.data() + col * width + plain.first_column;
        for (std::int64_t row = 0; row < std::ssize(rows) / cols; ++row) {
          to[(first + row) * plain.row_step] = rows[static_cast<std::size_t>(row * cols + col)];
        }
      });
    }
  }
  output.writer.write(tensor.name, plain_slice(pieces.front().slice).first_row * width * 2,
                      std::as_bytes(std::span(output.across)));
}

/// row += scale * B[row] A, added up over the ranks first.
void MergedCheckpoint::merge_row(const Piece& piece, std::int64_t row,
                                 std::span<float> values) const {
  const AdapterFactors<const float> its = adapters_.factors(piece.adapter);
  const float scale = adapters_.spec(piece.adapter).scale;
  std::vector<float> sum(values.size());
  for (std::int64_t r = 0; r < its.a.rows(); ++r) {
    const float b = its.b(row, r);
    const std::span<const float> a = its.a.row(r);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = std::fma(b, a[i], sum[i]);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) values[i] = std::fma(scale, sum[i], values[i]);
}

void MergedCheckpoint::write_texts(const std::string& directory) const {
  const Json config = Json::read_file(checkpoint_.path_of("config.json"));
  write_file(directory, "config.json", json_text(config, "", true) + "\n");
  if (num_shards() == 1) return;
  JsonWriter map;
  for (std::int64_t shard = 0; shard < num_shards(); ++shard) {
    for (const std::size_t i : shards_[static_cast<std::size_t>(shard)]) {
      map.field(tensors_[i].spec.name, shard_name(shard));
    }
  }
  const JsonWriter index =
      JsonWriter()
          .raw_field("metadata", JsonWriter().field("total_size", bytes_).text())
          .raw_field("weight_map", map.text());
  write_file(directory, "model.safetensors.index.json", index.text() + "\n");
}

}  // namespace moesaic
