#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"

namespace moesaic {

class ReplacingFile;

/// What a tensor of a file to be written will be.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Writes a safetensors file piece by piece, in any order, without holding it in memory. The data
/// goes to a temporary file beside `path`, which takes the name in finish(); a writer that is
/// destroyed before leaves nothing behind.
class SafetensorsWriter {
 public:
  /// Reserves the whole size on disk. Throws Error{resource} naming `path` if the directory cannot
  /// be written to or the disk is too small, Error{internal} if two tensors share a name.
  /// The header says that the tensors are PyTorch's, as other readers want it.
  SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes `bytes` at `byte_offset` of the tensor's data. Every byte is to be written once.
  /// Throws Error{resource} naming the path when the disk refuses.
  void write(std::string_view tensor, std::int64_t byte_offset, std::span<const std::byte> bytes);

  /// Makes the file appear under its name. Throws Error{internal} if fewer or more bytes were
  /// written than the tensors have, Error{resource} when the disk refuses.
  void finish();

 private:
  struct Place {
    TensorSpec spec;
    std::int64_t begin_byte = 0;  ///< in the file
    std::int64_t size_bytes = 0;
    std::int64_t written_bytes = 0;
  };
  void lay_out(std::vector<TensorSpec> tensors);
  [[nodiscard]] std::string header_text() const;

  std::string path_;
  std::vector<Place> places_;  ///< in the order of the data
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unique_ptr<ReplacingFile> file_;
};

}  // namespace moesaic
