#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moesaic {

/// Memory for packed weights that the host cannot write to: a GPU's.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// Makes room for so many bytes, once; returns the address there. Throws Error{resource}.
  [[nodiscard]] virtual const std::byte* allocate(std::int64_t bytes) = 0;
  /// Puts bytes to an address there. For several threads; `bytes` are not needed afterwards.
  virtual void write(const std::byte* to, std::span<const std::byte> bytes) = 0;
};

}  // namespace moesaic
