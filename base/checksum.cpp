#include "base/checksum.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>
#include <new>

namespace moesaic {

struct Checksum::State {
  XXH3_state_t* xxh3 = XXH3_createState();

  State() {
    if (xxh3 == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(state_->xxh3);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const noexcept {
  return XXH3_64bits_digest(state_->xxh3);
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum(std::string_view text) noexcept {
  return checksum(std::as_bytes(std::span(text)));
}

std::string checksum_text(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::optional<std::uint64_t> checksum_from_text(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (text.size() != 16 || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace moesaic
