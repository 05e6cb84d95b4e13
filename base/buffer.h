#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/matrix_view.h"
#include "base/page_mapping.h"

namespace moesaic {

/// Anonymous memory, zero-filled, 64-byte aligned (2 MiB from 4 MiB on, with huge pages asked for).
/// Pages are touched by whoever writes first, so their NUMA node is the writer's.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  /// Throws Error{resource} when the system refuses the memory.
  explicit ByteBuffer(std::size_t bytes);
  /// Of `needed` bytes and a quarter more, which takes no memory until it is used.
  [[nodiscard]] static ByteBuffer with_slack(std::size_t needed);

  [[nodiscard]] std::byte* data() const noexcept { return pages_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data(), size_}; }

 private:
  ByteBuffer(std::size_t bytes, std::size_t needed);

  PageMapping pages_;
  std::size_t size_ = 0;
};

/// `count` elements of a trivial type in a ByteBuffer, zero at first.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), count_(count) {}

  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(bytes_.data()); }
  [[nodiscard]] std::int64_t size() const noexcept { return count_; }
  [[nodiscard]] std::span<T> span() const noexcept {
    return {data(), static_cast<std::size_t>(count_)};
  }
  /// The first rows * cols elements as a matrix.
  [[nodiscard]] MatrixView<T> matrix(std::int64_t rows, std::int64_t cols) const {
    assert(rows * cols <= count_);
    return {data(), rows, cols};
  }
  /// Makes room for `count` elements; the contents are lost if it has to grow.
  void reserve(std::int64_t count) {
    if (count <= count_) return;
    *this = Buffer();  // first: both together may be too much
    bytes_ = ByteBuffer::with_slack(static_cast<std::size_t>(count) * sizeof(T));
    count_ = static_cast<std::int64_t>(bytes_.size() / sizeof(T));
  }
  /// Exactly `count` elements; the contents are lost, but where it has this size.
  void resize(std::int64_t count) {
    if (count == count_) return;
    *this = Buffer();  // first: both together may be too much
    *this = Buffer(count);
  }

 private:
  ByteBuffer bytes_;
  std::int64_t count_ = 0;
};

}  // namespace moesaic
