#include "src/checkpoint/codecs/stored_matrix.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "src/checkpoint/companion_names.h"

namespace moesaic {

void StoredTensor::refuse(std::string_view what) const {
  fail(ErrorKind::file, "{}: tensor \"{}\", {} {}, {}", whole->file, whole->name,
       dtype_name(dtype()), format_shape(whole->shape), what);
}

std::span<const std::byte> StoredTensor::row_bytes(std::int64_t first, std::int64_t end) const {
  assert(first >= 0 && first <= end && end <= shape.at(0));
  if (first == end) return {};
  const std::int64_t size = std::ssize(bytes) / shape[0];
  return bytes.subspan(static_cast<std::size_t>(first * size),
                       static_cast<std::size_t>((end - first) * size));
}

void StoredTensor::require_form(DType expected, std::initializer_list<std::int64_t> dims) const {
  if (dtype() != expected) refuse(fmt::format("should be {}", dtype_name(expected)));
  require_shape(dims);
}

void StoredTensor::require_shape(std::initializer_list<std::int64_t> expected) const {
  if (std::ranges::equal(shape, expected)) return;
  const bool one_of_many = shape.size() < whole->shape.size();
  refuse(fmt::format("should be {}{}",
                     format_shape(std::vector<std::int64_t>(expected.begin(), expected.end())),
                     one_of_many ? " for every expert" : ""));
}

StoredMatrix::StoredMatrix(const Checkpoint& checkpoint, const TensorSlice& slice)
    : checkpoint_(&checkpoint), tensor_(slice.tensor), rows_(slice.rows), cols_(slice.cols) {
  if (slice.shape.size() == 2) rows_ = slice.shape[0];
  first_row_ = slice.first_row;
  if (slice.shape.size() == 3) {
    num_experts_ = slice.shape[0];
    rows_ = slice.shape[1];
    expert_ = slice.first_row / rows_;
    first_row_ = slice.first_row % rows_;
  }
}

std::optional<StoredTensor> StoredMatrix::find(
    std::initializer_list<std::string_view> companions) const {
  for (const std::string_view companion : companions) {
    for (const std::string& name : companion_names(tensor_, companion)) {
      const TensorView* tensor = checkpoint_->find(name);
      if (tensor == nullptr) continue;
      StoredTensor found{tensor, tensor->shape, tensor->bytes};
      if (num_experts_ == 0 || found.shape.empty() || found.shape[0] != num_experts_) return found;
      found.shape.erase(found.shape.begin());
      const std::size_t size = found.bytes.size() / static_cast<std::size_t>(num_experts_);
      found.bytes = found.bytes.subspan(static_cast<std::size_t>(expert_) * size, size);
      return found;
    }
  }
  return std::nullopt;
}

StoredTensor StoredMatrix::at(std::string_view companion) const {
  if (auto found = find(companion)) return *std::move(found);
  fail(ErrorKind::file, "{}: tensor \"{}\" is missing", checkpoint_->directory(),
       companion_names(tensor_, companion).front());
}

}  // namespace moesaic
