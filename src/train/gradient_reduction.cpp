#include "src/train/gradient_reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// Sums what lies in `parts`, and nothing else: pieces of them travel together.
void start_sums(PendingSums& sums, std::span<const std::span<std::int64_t>> parts,
                const RowLabel& label) {
  std::vector<std::span<std::int64_t>> pieces;
  std::int64_t room = PendingSums::kMostValues;
  const auto start = [&] {
    if (!pieces.empty()) (void)sums.start_sum(pieces, label);
    pieces.clear();
    room = PendingSums::kMostValues;
  };
  for (const std::span<std::int64_t> part : parts) {
    for (std::size_t done = 0; done < part.size(); done += pieces.back().size()) {
      if (room == 0) start();
      const std::size_t count = std::min(part.size() - done, static_cast<std::size_t>(room));
      pieces.push_back(part.subspan(done, count));
      room -= static_cast<std::int64_t>(count);
    }
  }
  start();
}

/// Adds an adapter's values, which stand behind those of the adapters before it: an A that adapters
/// share once, what lies side by side as one part.
void add_values(const AdapterPlace& place, AdapterGradients& gradients,
                std::vector<std::span<std::int64_t>>& parts) {
  for (const FactorPlace& factor : {place.a, place.b}) {
    std::int64_t* const first = gradients.sums().data() + factor.first;
    const auto size = static_cast<std::size_t>(factor.size());
    if (parts.empty() || parts.back().data() + parts.back().size() < first) {
      parts.emplace_back(first, size);
    } else if (parts.back().data() + parts.back().size() == first) {
      parts.back() = {parts.back().data(), parts.back().size() + size};
    }
  }
}

}  // namespace

GradientReduction::GradientReduction(const AdapterSet& set, std::span<const AdapterSpec> all,
                                     const TrainRanks& ranks, ThreadPool& pool)
    : set_(set),
      all_(all),
      ranks_(ranks),
      pool_(pool),
      places_(indices_in(all, set)),
      counts_experts_(ranks.replicas.rank() == 0),
      world_sums_(ranks.world),
      replica_sums_(ranks.replicas) {
  for (const AdapterSpec& spec : all) {
    layers_.resize(std::max(layers_.size(), static_cast<std::size_t>(spec.site.layer) + 1));
  }
  for (std::int64_t i = 0; i < set.size(); ++i) {
    Layer& layer = layers_[static_cast<std::size_t>(set.spec(i).site.layer)];
    (i < set.num_common() ? layer.common : layer.experts).push_back(static_cast<std::int32_t>(i));
  }
  begun_ = std::ssize(layers_);
}

std::int64_t GradientReduction::most_bytes(int ranks, int replicas, const Summed& values) {
  return (ranks > 1 ? PendingSums::most_bytes(values.common) : 0) +
         (replicas > 1 ? PendingSums::most_bytes(values.of_experts) : 0);
}

/// In the pass of a micro-batch which the rank is in, or was last.
RowLabel GradientReduction::label(std::int64_t layer) const {
  RowLabel place = ranks_.world.place();
  place.layer = static_cast<std::int32_t>(layer);
  return place.at("sums");
}

/// Sums over ranks stay below 2^62 if those of each of them leave room for the others.
void GradientReduction::find_too_large(std::span<const std::int32_t> adapters,
                                       const AdapterGradients& gradients) {
  const std::int64_t limit = (std::int64_t{1} << 62) / ranks_.world.size();
  std::vector<std::uint8_t> found(adapters.size());
  pool_.for_each(std::ssize(adapters), 1, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const AdapterPlace& place = set_.places()[static_cast<std::size_t>(adapters[at])];
    const bool is_too_large =
        gradients.any_beyond(place.a, limit) || gradients.any_beyond(place.b, limit);
    found[at] = is_too_large ? 1 : 0;
  });
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (found[i] != 0) note_broken(adapters[i]);
  }
}

void GradientReduction::note_broken(std::int32_t adapter) {
  first_broken_ = std::min(first_broken_, places_[static_cast<std::size_t>(adapter)]);
}

void GradientReduction::start(std::int64_t layer, AdapterGradients& gradients) {
  while (begun_ > layer) start_layer(--begun_, gradients);
}

void GradientReduction::start_layer(std::int64_t layer, AdapterGradients& gradients) {
  const auto& [common, experts] = layers_[static_cast<std::size_t>(layer)];
  find_too_large(common, gradients);
  find_too_large(experts, gradients);
  if (ranks_.world.size() > 1) {
    Values values;
    for (const std::int32_t adapter : common) {
      add_values(set_.places()[static_cast<std::size_t>(adapter)], gradients, values);
    }
    start_sums(world_sums_, values, label(layer));
  }
  if (ranks_.replicas.size() == 1) return;
  if (!experts.empty()) start_touched(layer, gradients);
  start_experts(gradients);
}

/// Of experts that nobody had a row for, all replicas have zeros already.
void GradientReduction::start_touched(std::int64_t layer, const AdapterGradients& gradients) {
  TouchedExperts& touched = touched_.emplace_back();
  touched.layer = layer;
  for (const std::int32_t adapter : layers_[static_cast<std::size_t>(layer)].experts) {
    const bool is_touched =
        gradients.touched(adapter, Factor::a) || gradients.touched(adapter, Factor::b);
    touched.replicas.push_back(is_touched ? 1 : 0);
  }
  const std::array<std::span<std::int64_t>, 1> parts = {touched.replicas};
  touched.sum = replica_sums_.start_sum(parts, label(layer));
}

/// Of layers whose experts with rows are known.
void GradientReduction::start_experts(AdapterGradients& gradients) {
  while (!touched_.empty() && replica_sums_.is_done(touched_.front().sum)) {
    const TouchedExperts touched = std::move(touched_.front());
    touched_.pop_front();
    const Layer& layer = layers_[static_cast<std::size_t>(touched.layer)];
    Values values;
    for (std::size_t i = 0; i < layer.experts.size(); ++i) {
      if (touched.replicas[i] == 0) continue;
      add_values(set_.places()[static_cast<std::size_t>(layer.experts[i])], gradients, values);
    }
    start_sums(replica_sums_, values, label(touched.layer));
  }
}

std::optional<std::string> GradientReduction::sum(AdapterGradients& gradients) {
  start(0, gradients);
  while (!touched_.empty()) {
    replica_sums_.finish();
    start_experts(gradients);
  }
  world_sums_.finish();
  replica_sums_.finish();
  for (std::int32_t i = 0; i < set_.size(); ++i) {
    if (!gradients.is_finite(i)) note_broken(i);
  }
  std::int64_t broken = -std::exchange(first_broken_, kNone);
  ranks_.world.max({&broken, 1});  // so that it is the first of all ranks'
  begun_ = std::ssize(layers_);
  if (broken == -kNone) return std::nullopt;
  return all_[static_cast<std::size_t>(-broken)].site.module;
}

double GradientReduction::norm(const AdapterGradients& gradients) const {
  // One number a factor, at its place in the model, from one rank: sums of bit patterns with zeros
  // then gather them, and all ranks add them in one order.
  std::vector<std::int64_t> squares(all_.size() * 2);
  pool_.for_each(set_.size(), 1, [&](std::int64_t i) {
    const bool counts = i < set_.num_common() ? ranks_.world.rank() == 0 : counts_experts_;
    if (!counts) return;
    const AdapterPlace& place = set_.places()[static_cast<std::size_t>(i)];
    const auto at = static_cast<std::size_t>(places_[static_cast<std::size_t>(i)] * 2);
    if (!set_.spec(i).shares_a) {
      squares[at] = std::bit_cast<std::int64_t>(gradients.sum_of_squares(place.a));
    }
    squares[at + 1] = std::bit_cast<std::int64_t>(gradients.sum_of_squares(place.b));
  });
  ranks_.world.sum(squares);
  double total = 0;
  for (const std::int64_t square : squares) total += std::bit_cast<double>(square);
  return std::sqrt(total);
}

}  // namespace moesaic
