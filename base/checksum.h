#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// XXH3 of 64 bits, taken in piece by piece: finds damage by accident, not by intent.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  /// Of all that was added so far.
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] std::uint64_t checksum(std::string_view text) noexcept;

/// 16 hexadecimal digits, as xxhsum writes them.
[[nodiscard]] std::string checksum_text(std::uint64_t value);
/// Inverse of checksum_text; nothing if it is no such text.
[[nodiscard]] std::optional<std::uint64_t> checksum_from_text(std::string_view text) noexcept;

}  // namespace moesaic
