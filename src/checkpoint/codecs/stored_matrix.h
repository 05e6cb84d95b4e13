#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/tensor_slice.h"

namespace moesaic {

/// One tensor of a stored matrix: all of it, or, of one that holds all experts, one expert's part.
struct StoredTensor {
  const TensorView* whole = nullptr;
  std::vector<std::int64_t> shape;   ///< without the dimension of experts
  std::span<const std::byte> bytes;  ///< row-major, at any alignment

  [[nodiscard]] DType dtype() const noexcept { return whole->dtype; }
  [[nodiscard]] std::int64_t num_elements() const noexcept {
    return std::ssize(bytes) / dtype_bytes(dtype());
  }
  /// Rows [first, end) of the outermost dimension.
  [[nodiscard]] std::span<const std::byte> row_bytes(std::int64_t first, std::int64_t end) const;
  /// Element `index` as it is stored.
  template <typename T>
  [[nodiscard]] T load(std::int64_t index) const noexcept {
    T value;
    std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  /// Throws Error{file} that names file and tensor; `what` is the rest of the sentence.
  [[noreturn]] void refuse(std::string_view what) const;
  /// Throws Error{file} unless the tensor has this dtype and shape.
  void require_form(DType dtype, std::initializer_list<std::int64_t> shape) const;
  void require_shape(std::initializer_list<std::int64_t> expected) const;
};

/// A matrix as a checkpoint stores it: all tensors whose names begin as the slice's does
/// (companion_names.h). Points into the checkpoint.
class StoredMatrix {
 public:
  /// Throws Error{file} if the slice is none of a matrix.
  StoredMatrix(const Checkpoint& checkpoint, const TensorSlice& slice);

  /// Rows of the stored matrix (of one expert's); the slice may be some of them.
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  /// The slice's first row in the stored matrix.
  [[nodiscard]] std::int64_t first_row() const noexcept { return first_row_; }
  [[nodiscard]] const QuantizationConfig& config() const noexcept {
    return checkpoint_->quantization();
  }

  /// nullopt if there is no such companion; of several, the first that is there.
  [[nodiscard]] std::optional<StoredTensor> find(
      std::initializer_list<std::string_view> companions) const;
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view companion) const {
    return find({companion});
  }
  /// Throws Error{file} naming the tensor if it is not there.
  [[nodiscard]] StoredTensor at(std::string_view companion) const;

 private:
  const Checkpoint* checkpoint_;
  std::string_view tensor_;
  std::int64_t num_experts_ = 0;  // in one tensor; 0: it has no such dimension
  std::int64_t expert_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t first_row_ = 0;
};

}  // namespace moesaic
