#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/packed_directory.h"
#include "src/model/model_names.h"

namespace moesaic {

/// The weights of a model on disk: a checkpoint, or a directory that `moesaic convert` made. Cheap
/// to copy.
class ModelFiles {
 public:
  ModelFiles() = default;
  /// Throws Error{file} as Checkpoint::open and PackedDirectory::open do.
  [[nodiscard]] static ModelFiles open(const std::string& directory);
  /// Those of a checkpoint that is not there, as save_pretrained of transformers would write it in
  /// one type of numbers: for what follows from names and shapes. Nothing of it may be read.
  [[nodiscard]] static ModelFiles described(const std::string& directory, const ModelConfig& config,
                                            DType dtype);

  /// One of these two; nullptr otherwise.
  [[nodiscard]] const Checkpoint* checkpoint() const noexcept { return checkpoint_.get(); }
  [[nodiscard]] const PackedDirectory* packed() const noexcept { return packed_.get(); }

  [[nodiscard]] const std::string& directory() const noexcept;
  [[nodiscard]] std::string path_of(std::string_view file) const;
  /// Bytes of all weights.
  [[nodiscard]] std::int64_t total_bytes() const noexcept;
  [[nodiscard]] std::int64_t num_files() const noexcept;
  /// Where each weight of the model is in the checkpoint; of a converted directory the shapes and
  /// usual names.
  [[nodiscard]] ModelNames names(const ModelConfig& config) const;
  /// As MappedFile::require_read, for all files of weights.
  void require_read() const;
  /// As MappedFile::release_pages, for all files of weights.
  void release_pages() const noexcept;

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const PackedDirectory> packed_;
};

}  // namespace moesaic
