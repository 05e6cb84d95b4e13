#include "tests/gpu/ptx_machine/memory_operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx_machine/warp.h"

namespace moesaic::ptx {
namespace {

constexpr std::size_t kMostBytes = 16;

/// Where the lanes of an access are.
struct Places {
  std::array<std::uint64_t, kWarpLanes> at;
  std::size_t bytes;
};

/// What memory has to do for an access: sectors of 32 bytes, passes over the 32 banks of shared
/// memory (16-byte accesses take four quarters of a warp, 8-byte ones two halves).
void count(Counters& counters, const Places& places, std::uint32_t lanes, bool is_shared) {
  std::vector<std::uint64_t> units;
  const auto per_pass = static_cast<unsigned>(128 / std::max<std::size_t>(places.bytes, 4));
  for (unsigned first = 0; first < kWarpLanes; first += is_shared ? per_pass : kWarpLanes) {
    units.clear();
    for (unsigned lane = first; lane < first + (is_shared ? per_pass : kWarpLanes); ++lane) {
      if (lane >= kWarpLanes || (lanes >> lane & 1) == 0) continue;
      const std::uint64_t unit = is_shared ? 4 : 32;
      for (std::uint64_t u = places.at[lane] / unit;
           u <= (places.at[lane] + places.bytes - 1) / unit; ++u) {
        units.push_back(u);
      }
      if (!is_shared) counters.global_bytes += places.bytes;
    }
    if (units.empty()) continue;
    std::ranges::sort(units);
    units.erase(std::unique(units.begin(), units.end()), units.end());
    if (!is_shared) {
      counters.global_sectors += units.size();
      continue;
    }
    std::array<unsigned, 32> words{};
    for (const std::uint64_t unit : units) ++words[static_cast<std::size_t>(unit % 32)];
    ++counters.shared_passes;
    counters.shared_conflicts += *std::ranges::max_element(words) - 1;
  }
}

Places places_of(Warp& warp, const Instruction& in, int address) {
  // Addresses stand first in a store and last in a load.
  const std::uint64_t* const base = warp.slot(in.slots[static_cast<std::size_t>(address)]);
  Places places{.at = {}, .bytes = static_cast<std::size_t>(in.items * in.item_bytes)};
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    places.at[lane] = base[lane] + static_cast<std::uint64_t>(in.offsets[0]);
  }
  return places;
}

bool is_shared(const Instruction& in, std::uint64_t at) {
  return in.space == Space::shared || (in.space == Space::generic && at >= kSharedWindow);
}

void load_lane(Warp& warp, const Instruction& in, std::uint64_t at, void* to) {
  BlockState& block = warp.block();
  const auto bytes = static_cast<std::size_t>(in.items * in.item_bytes);
  if (in.space == Space::parameter) {
    if (at + bytes > block.parameters.size()) throw MachineError("outside the parameters");
    std::memcpy(to, block.parameters.data() + at, bytes);
  } else if (is_shared(in, at)) {
    block.shared.load(at & (kSharedWindow - 1), to, bytes, warp.index());
  } else {
    block.memory->load(at, to, bytes);
  }
}

std::uint64_t item_of(const Instruction& in, const std::uint8_t* data, int item) {
  std::uint64_t value = 0;
  const auto bytes = static_cast<std::size_t>(in.item_bytes);
  std::memcpy(&value, data + static_cast<std::size_t>(item) * bytes, bytes);
  if (!in.is_signed) return value;
  const int unused = 64 - 8 * in.item_bytes;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
}

void load(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const Places places = places_of(warp, in, in.items);
  std::uint8_t data[kMostBytes] = {};
  std::uint64_t loaded = ~std::uint64_t{0};  // lanes that read the same place get the same
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    if (places.at[lane] != loaded) load_lane(warp, in, places.at[lane], data);
    loaded = places.at[lane];
    for (int item = 0; item < in.items; ++item) {
      warp.slot(in.slots[static_cast<std::size_t>(item)])[lane] = item_of(in, data, item);
    }
  }
  if (warp.block().counters != nullptr && in.space != Space::parameter) {
    count(*warp.block().counters, places, lanes, is_shared(in, loaded));
  }
}

void store(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const Places places = places_of(warp, in, 0);
  BlockState& block = warp.block();
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    std::uint8_t data[kMostBytes];
    for (int item = 0; item < in.items; ++item) {
      const std::uint64_t value = warp.slot(in.slots[static_cast<std::size_t>(item + 1)])[lane];
      std::memcpy(data + item * in.item_bytes, &value, static_cast<std::size_t>(in.item_bytes));
    }
    const std::uint64_t at = places.at[lane];
    if (is_shared(in, at)) {
      block.shared.store(at & (kSharedWindow - 1), data, places.bytes, warp.index());
    } else {
      block.memory->store(at, data, places.bytes);
    }
  }
  if (block.counters != nullptr) {
    count(*block.counters, places, lanes, in.space == Space::shared);
  }
}

/// "u32", "b64": bytes; 0 for what is no type.
int type_bytes(std::string_view type, bool& is_signed) {
  is_signed = type.starts_with('s');
  for (const char kind : {'u', 's', 'b', 'f'}) {
    if (!type.starts_with(kind)) continue;
    const std::string_view bits = type.substr(1);
    return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
  }
  return 0;
}

}  // namespace

bool set_memory_operation(Instruction& in) {
  std::string_view rest = in.text;
  const auto take = [&](std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  const bool is_load = take("ld");
  if (!is_load && !take("st")) return false;
  if (take(".global"))
    in.space = Space::global;
  else if (take(".shared"))
    in.space = Space::shared;
  else if (is_load && take(".param"))
    in.space = Space::parameter;
  if (in.space == Space::global && is_load) take(".nc");
  if (take(".v2"))
    in.items = 2;
  else if (take(".v4"))
    in.items = 4;
  if (!take(".")) return false;
  in.item_bytes = type_bytes(rest, in.is_signed);
  if (in.item_bytes == 0 || in.items * in.item_bytes > static_cast<int>(kMostBytes)) return false;
  in.execute = is_load ? load : store;
  return in.num_slots == in.items + 1 && in.num_addresses == 1;
}

void load_matrices(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.require_all(lanes);
  const auto matrices = static_cast<std::size_t>(in.num_slots - 1);
  Places places = places_of(warp, in, in.num_slots - 1);
  places.bytes = 16;                                // of a row
  std::array<std::uint32_t, kWarpLanes * 4> words;  // [matrices * 8 rows][4]
  for (std::size_t row = 0; row < matrices * 8; ++row) {
    warp.block().shared.load(places.at[row] & (kSharedWindow - 1), words.data() + row * 4,
                             places.bytes, warp.index());
  }
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t i = 0; i < matrices; ++i) {
      warp.slot(in.slots[i])[lane] = words[i * kWarpLanes + lane];
    }
  }
  if (warp.block().counters != nullptr) {
    const std::uint32_t that_say_where = matrices == 4 ? 0xffffffff : (1U << matrices * 8) - 1;
    count(*warp.block().counters, places, that_say_where, true);
  }
}

void begin_copy(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t* const to = warp.slot(in.slots[0]);
  const std::uint64_t* const from = warp.slot(in.slots[1]);
  BlockState& block = warp.block();
  const std::uint64_t* const num_read = warp.slot(in.slots[3]);  // zeros follow
  Places places{.at = {}, .bytes = *warp.slot(in.slots[2])};
  if (places.bytes != 16) throw MachineError("a copy of other than 16 bytes");
  std::uint32_t readers = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    places.at[lane] = from[lane] + static_cast<std::uint64_t>(in.offsets[1]);
    if ((lanes >> lane & 1) == 0) continue;
    if (num_read[lane] > places.bytes) throw MachineError("a copy reads more than 16 bytes");
    if (places.at[lane] % places.bytes != 0) {
      throw MachineError(fmt::format("misaligned address {:#x} of a copy", places.at[lane]));
    }
    std::uint8_t data[kMostBytes];  // that they are there shows now
    if (num_read[lane] > 0) block.memory->load(places.at[lane], data, num_read[lane]);
    const std::uint64_t place = to[lane] + static_cast<std::uint64_t>(in.offsets[0]);
    block.shared.begin_copy(place, places.bytes, warp.index());
    warp.copies[lane].push_back({.to = place,
                                 .from = places.at[lane],
                                 .bytes = places.bytes,
                                 .num_read = num_read[lane],
                                 .group = warp.open_group[lane]});
    if (num_read[lane] != 0) readers |= 1U << lane;
  }
  if (warp.block().counters != nullptr) count(*warp.block().counters, places, readers, false);
}

void close_copies(Warp& warp, const Instruction&, std::uint32_t lanes) {
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) ++warp.open_group[lane];
  }
}

void wait_for_copies(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  BlockState& block = warp.block();
  const std::uint64_t left = *warp.slot(in.slots[0]);  // groups that need not have landed
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    auto& copies = warp.copies[lane];
    const auto landed = [&](const Warp::Copy& copy) {
      return copy.group + left < warp.open_group[lane];
    };
    for (const Warp::Copy& copy : copies) {
      if (!landed(copy)) continue;
      std::uint8_t data[kMostBytes] = {};
      if (copy.num_read > 0) block.memory->load(copy.from, data, copy.num_read);
      block.shared.land_copy(copy.to, data, copy.bytes, warp.index());
    }
    std::erase_if(copies, landed);
  }
}

}  // namespace moesaic::ptx
