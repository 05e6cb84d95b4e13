#include "src/lora/written_modules.h"

#include <numbers>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

/// Ranks add up where gate and up are fused block by block; alpha grows so that the scale stays.
WrittenModule with_numbers(PeftModule module, std::span<const AdapterSpec> adapters,
                           bool rank_stabilised) {
  const auto adapter = [&](const PeftMember& member) -> const AdapterSpec& {
    return adapters[static_cast<std::size_t>(member.adapter)];
  };
  const AdapterSpec& first = adapter(module.members.front());
  bool shares_a = false;
  bool has_gate_or_up = false;
  for (const PeftMember& member : module.members) {
    const AdapterSpec& its = adapter(member);
    require(its.rank == first.rank && its.alpha == first.alpha, ErrorKind::usage,
            "adapters of {} (rank {}, alpha {}) and {} (rank {}, alpha {}) cannot be fused in one "
            "module; the layout {} has a module for each",
            first.site.module, first.rank, first.alpha, its.site.module, its.rank, its.alpha,
            kAdapterLayoutNames[0]);
    shares_a |= its.shares_a;
    has_gate_or_up |= member.part == MlpPart::gate || member.part == MlpPart::up;
  }
  WrittenModule written{
      .module = std::move(module), .rank = first.rank, .alpha = first.alpha, .up_first_rank = 0};
  if (!has_gate_or_up || shares_a) return written;
  written.up_first_rank = first.rank;
  written.rank = 2 * first.rank;
  written.alpha = first.alpha * (rank_stabilised ? std::numbers::sqrt2 : 2.0);
  return written;
}

}  // namespace

std::vector<WrittenModule> written_modules(std::span<const AdapterSpec> adapters,
                                           AdapterLayout layout, bool rank_stabilised) {
  std::vector<AdapterSite> sites;
  for (const AdapterSpec& adapter : adapters) sites.push_back(adapter.site);
  std::vector<WrittenModule> written;
  for (PeftModule& module : peft_modules(sites, layout)) {
    written.push_back(with_numbers(std::move(module), adapters, rank_stabilised));
  }
  return written;
}

}  // namespace moesaic
