#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/checkpoint/quantization_config.h"
#include "src/checkpoint/safetensors.h"

namespace moesaic {

/// A Hugging Face checkpoint directory: config.json and model.safetensors, or several shards that
/// model.safetensors.index.json lists. Holds the mapped files; opening reads their headers and what
/// the configuration says of quantised weights.
class Checkpoint {
 public:
  /// Throws Error{file} that says what is wrong and, where there is one, what to do.
  ///
  /// Every shard of the index must be there and hold the tensors that the index puts in it, and no
  /// tensor may stand in two shards. Tensors of a shard that the index does not name are left out,
  /// as transformers does; unindexed_names() lists them.
  static Checkpoint open(const std::string& directory);

  /// A checkpoint that is not there, of plain tensors: names, types and shapes of `tensors` alone
  /// count. Nothing of it may be read. Throws Error{resource} when the system refuses the
  /// addresses.
  static Checkpoint described(std::string directory, std::vector<TensorView> tensors);

  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  /// Path of a file in the directory, whether there is one or not.
  [[nodiscard]] std::string path_of(std::string_view file) const;

  /// nullptr if there is none of this name.
  [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;
  [[nodiscard]] bool contains(std::string_view name) const noexcept {
    return find(name) != nullptr;
  }
  /// Throws Error{file} naming the directory and the tensor if there is none of this name.
  [[nodiscard]] const TensorView& at(std::string_view name) const;

  /// All tensors, in ascending order of their names.
  [[nodiscard]] const std::vector<const TensorView*>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::vector<std::string>& unindexed_names() const noexcept {
    return unindexed_;
  }
  /// What config.json or a file beside it says of quantised weights.
  [[nodiscard]] const QuantizationConfig& quantization() const noexcept { return quantization_; }
  /// Bytes of the data of all tensors.
  [[nodiscard]] std::int64_t total_bytes() const noexcept { return total_bytes_; }
  [[nodiscard]] std::int64_t num_files() const noexcept {
    return static_cast<std::int64_t>(files_.size());
  }
  /// As MappedFile::require_read, for all files.
  void require_read() const {
    for (const SafetensorsFile& file : files_) file.require_read();
  }
  /// As MappedFile::release_pages, for all files.
  void release_pages() const noexcept {
    for (const SafetensorsFile& file : files_) file.release_pages();
  }

 private:
  explicit Checkpoint(std::string directory) : directory_(std::move(directory)) {}
  void open_single();
  void open_shards();
  void finish_index();

  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorView> described_;
  std::shared_ptr<const std::byte> unread_;  // where the bytes of these would be
  std::vector<const TensorView*> tensors_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;
  std::vector<std::string> unindexed_;
  QuantizationConfig quantization_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace moesaic
