#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/lora/adapter_set.h"
#include "src/model/model_files.h"

namespace moesaic {

/// A checkpoint with an adapter merged into it, to be written as save_pretrained writes one: names
/// of tensors are those of the checkpoint, all as if nothing were quantised: experts of gpt-oss in
/// blocks lie across then. Matrices that have an adapter or are quantised become bf16(W + scale B
/// A), all other tensors are copied byte for byte.
class MergedCheckpoint {
 public:
  /// Plans the shards. `adapters`: all of the model. All must outlive this. Throws Error{file} for
  /// a tensor that is missing or not what the config says.
  MergedCheckpoint(const Checkpoint& checkpoint, const ModelNames& names,
                   const AdapterSet& adapters);

  [[nodiscard]] std::int64_t num_shards() const noexcept { return std::ssize(shards_); }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// Bytes of one shard.
  [[nodiscard]] std::int64_t shard_bytes(std::int64_t shard) const;
  /// Called now and then with the bytes of the shard that are written.
  using Watch = std::function<void(std::int64_t done_bytes)>;
  /// Writes a shard into `directory`. Throws Error{resource} when the disk refuses, Error{file} for
  /// scales that are no numbers, naming the tensor for a merged or dequantised value that is not
  /// finite in bf16, and for a file of the checkpoint that was cut short meanwhile.
  void write_shard(std::int64_t shard, const std::string& directory, ThreadPool& pool,
                   const Watch& watch) const;
  /// Writes config.json, without what it says of quantisation, and the index of several shards.
  void write_texts(const std::string& directory) const;

 private:
  /// Rows of a tensor, and the adapter that is for them.
  struct Piece {
    TensorSlice slice;
    std::int64_t adapter = -1;
  };
  struct Tensor {
    TensorSpec spec;
    const TensorView* copied = nullptr;  // or else:
    std::vector<Piece> pieces;
  };
  void add_slices(const ModelNames& names);
  void add_tensors();
  void make_shards();
  [[nodiscard]] std::string shard_name(std::int64_t shard) const;
  /// A shard that is being written.
  struct Output {
    SafetensorsWriter writer;
    ThreadPool& pool;
    const Watch& watch;
    std::int64_t done_bytes = 0;
    std::vector<std::byte> copied{};
    std::vector<float> rows{};
    std::vector<BFloat16> rounded{};
    std::vector<BFloat16> across{};
  };
  void write_tensor(const Tensor& tensor, Output& output) const;
  static void copy_tensor(const Tensor& tensor, Output& output);
  std::span<const BFloat16> merged_rows(const TensorSpec& tensor, const Piece& piece,
                                        std::int64_t first, Output& output) const;
  void write_rows(const TensorSpec& tensor, const Piece& piece, Output& output) const;
  void write_across(const TensorSpec& tensor, std::span<const Piece> pieces, Output& output) const;
  void merge_row(const Piece& piece, std::int64_t row, std::span<float> values) const;

  const Checkpoint& checkpoint_;
  const AdapterSet& adapters_;
  std::unordered_map<std::string, std::vector<Piece>> slices_;  // by tensor
  std::vector<Tensor> tensors_;
  std::vector<std::vector<std::size_t>> shards_;
  std::int64_t bytes_ = 0;
};

}  // namespace moesaic
