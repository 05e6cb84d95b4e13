#include "src/moe/expert_mask.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// The layer with experts that a key names.
std::size_t layer_of(const std::string& key, std::span<const std::int64_t> experts,
                     const Json& value) {
  std::size_t layer = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, layer);
  require(error == std::errc() && stop == end && layer < experts.size(), ErrorKind::file,
          "{}: there is no layer \"{}\": the model has layers 0 to {}", value.where(), key,
          std::ssize(experts) - 1);
  require(experts[layer] > 0, ErrorKind::file, "{}: layer {} has no experts", value.where(), layer);
  return layer;
}

}  // namespace

ExpertMask::ExpertMask(std::vector<std::int64_t> experts) {
  for (const std::int64_t count : experts) {
    chosen_.emplace_back(static_cast<std::size_t>(count), false);
  }
}

ExpertMask ExpertMask::all(std::vector<std::int64_t> experts) {
  const std::int64_t most = experts.empty() ? 0 : std::ranges::max(experts);
  return spread(std::move(experts), most);
}

ExpertMask ExpertMask::spread(std::vector<std::int64_t> experts, std::int64_t count) {
  ExpertMask mask(std::move(experts));
  for (auto& layer : mask.chosen_) {
    const std::int64_t all = std::ssize(layer);
    const std::int64_t wanted = std::min(count, all);
    for (std::int64_t expert = 0; expert < all; ++expert) {
      layer[static_cast<std::size_t>(expert)] = (expert + 1) * wanted / all > expert * wanted / all;
    }
  }
  return mask;
}

ExpertMask ExpertMask::read(std::vector<std::int64_t> experts, const Json& file) {
  ExpertMask mask(experts);
  file.for_each([&](const std::string& key, const Json& ids) {
    const std::size_t layer = layer_of(key, experts, ids);
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = ids.at(i).as_int();
      require(id >= 0 && id < experts[layer], ErrorKind::file,
              "{}: layer {} has no expert {}: ids are 0 to {}", ids.at(i).where(), layer, id,
              experts[layer] - 1);
      auto chosen = mask.chosen_[layer][static_cast<std::size_t>(id)];
      require(!chosen, ErrorKind::file, "{}: expert {} of layer {} stands twice", ids.at(i).where(),
              id, layer);
      chosen = true;
    }
  });
  return mask;
}

}  // namespace moesaic
