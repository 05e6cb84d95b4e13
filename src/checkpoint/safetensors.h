#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {

/// The header of a safetensors file may have so many bytes, as in the reference library.
inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// A tensor in a mapped file. The bytes live as long as the file that gave them, row-major and
/// little-endian, at any alignment.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< product of shape * dtype_bytes(dtype)
  std::string file;                  ///< path, for messages
};

/// "[128, 1536, 2048]".
[[nodiscard]] std::string format_shape(std::span<const std::int64_t> shape);

/// A safetensors file: a header length (u64, little-endian), a JSON header that gives dtype, shape
/// and data_offsets of each tensor, then the data.
class SafetensorsFile {
 public:
  /// Maps and checks the file. The tensors must cover the data without a hole or an overlap and end
  /// where the file ends, as the reference library demands. Throws Error{file} naming the file, the
  /// tensor, what was found and what was expected.
  static SafetensorsFile open(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// In the order of their data.
  [[nodiscard]] const std::vector<TensorView>& tensors() const noexcept { return tensors_; }
  /// nullptr if there is none of this name. Linear.
  [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;
  /// As MappedFile::require_read.
  void require_read() const { file_.require_read(); }
  /// As MappedFile::release_pages.
  void release_pages() const noexcept { file_.release_pages(); }

 private:
  SafetensorsFile(MappedFile file, std::vector<TensorView> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  std::vector<TensorView> tensors_;
};

/// Parses a whole safetensors file that lies in memory; `path` stands in messages and in the views,
/// which point into `bytes`. Throws as SafetensorsFile::open does.
[[nodiscard]] std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes,
                                                        const std::string& path);

}  // namespace moesaic
