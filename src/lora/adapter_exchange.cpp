#include "src/lora/adapter_exchange.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

/// Values that travel together.
constexpr std::int64_t kPieceValues = std::int64_t{1} << 22;

}  // namespace

AdapterExchange::AdapterExchange(const AdapterSet& set, std::span<const AdapterSpec> all,
                                 Communicator& world, bool counts_experts)
    : set_(set), all_(all), world_(world), counts_experts_(counts_experts), held_(all.size(), -1) {
  std::int64_t here = 0;
  for (const std::int64_t index : indices_in(all, set)) {
    held_[static_cast<std::size_t>(index)] = here++;
  }
}

const AdapterSpec& AdapterExchange::spec(std::int64_t index) const {
  return all_[static_cast<std::size_t>(index)];
}

std::vector<AdapterExchange::Piece> AdapterExchange::pieces(std::span<const AdapterSpec> all) {
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) {
    const std::int64_t values = all[static_cast<std::size_t>(i)].num_values();
    if (pieces.empty() || pieces.back().values + values > kPieceValues) {
      pieces.push_back({.first = i, .end = i});
    }
    pieces.back().end = i + 1;
    pieces.back().values += values;
  }
  return pieces;
}

/// visit(offset in the piece, offset in the rank's values, count) for each factor that is here.
template <typename Visit>
void AdapterExchange::for_each_held(const Piece& piece, const Visit& visit) const {
  std::int64_t offset = 0;
  for (std::int64_t i = piece.first; i < piece.end; ++i) {
    const std::int64_t here = held_[static_cast<std::size_t>(i)];
    if (here >= 0) {
      const AdapterPlace& place = set_.places()[static_cast<std::size_t>(here)];
      if (spec(i).a_values() > 0) visit(here, offset, place.a);
      visit(here, offset + spec(i).a_values(), place.b);
    }
    offset += spec(i).num_values();
  }
}

void AdapterExchange::collect(std::span<const float> values, const Take& take) const {
  world_.place() = world_.place().at("collecting");
  // Each value is here on one rank alone and zero bits on the others, so that sums of the bits
  // gather them.
  std::vector<std::int64_t> bits;
  std::vector<float> collected;
  const auto most = static_cast<std::size_t>(most_values(all_));
  bits.reserve((most + 1) / 2);  // vectors that grow leave holes
  collected.reserve(most);
  for (const Piece& piece : pieces(all_)) {
    bits.assign(static_cast<std::size_t>(piece.values + 1) / 2, 0);
    auto* const bytes = reinterpret_cast<std::byte*>(bits.data());
    for_each_held(piece, [&](std::int64_t here, std::int64_t offset, const FactorPlace& place) {
      const bool counts = here < set_.num_common() ? world_.rank() == 0 : counts_experts_;
      if (!counts) return;
      std::memcpy(bytes + offset * 4, values.data() + place.first,
                  static_cast<std::size_t>(place.size()) * 4);
    });
    if (world_.size() > 1) world_.sum(bits);
    if (world_.rank() != 0) continue;
    collected.resize(static_cast<std::size_t>(piece.values));
    std::memcpy(collected.data(), bits.data(), collected.size() * 4);
    const std::span<const float> all(collected);
    std::size_t offset = 0;
    for (std::int64_t i = piece.first; i < piece.end; ++i) {
      const auto a = static_cast<std::size_t>(spec(i).a_values());
      const auto b = static_cast<std::size_t>(spec(i).b_values());
      take(i, all.subspan(offset, a), all.subspan(offset + a, b));
      offset += a + b;
    }
  }
}

void AdapterExchange::distribute(std::span<float> values, const Give& give) const {
  std::vector<float> piece_values;
  piece_values.reserve(static_cast<std::size_t>(most_values(all_)));
  for (const Piece& piece : pieces(all_)) {
    piece_values.assign(static_cast<std::size_t>(piece.values), 0);
    if (world_.rank() == 0) {
      std::size_t offset = 0;
      for (std::int64_t i = piece.first; i < piece.end; ++i) {
        const auto a = static_cast<std::size_t>(spec(i).a_values());
        const auto b = static_cast<std::size_t>(spec(i).b_values());
        give(std::span(piece_values).subspan(offset, a),
             std::span(piece_values).subspan(offset + a, b));
        offset += a + b;
      }
    }
    if (world_.size() > 1) {
      world_.broadcast(std::as_writable_bytes(std::span(piece_values)), 0);
    }
    for_each_held(piece, [&](std::int64_t, std::int64_t offset, const FactorPlace& place) {
      std::memcpy(values.data() + place.first, piece_values.data() + offset,
                  static_cast<std::size_t>(place.size()) * 4);
    });
  }
}

std::int64_t AdapterExchange::most_values(std::span<const AdapterSpec> all) {
  std::int64_t most = 0;
  for (const Piece& piece : pieces(all)) most = std::max(most, piece.values);
  return most;
}

std::int64_t AdapterExchange::scratch_bytes(std::span<const AdapterSpec> all) {
  return 2 * most_values(all) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace moesaic
