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
            "module{}",
            first.site.module, first.rank, first.alpha, its.site.module, its.rank, its.alpha,
            peft_target(first.site, AdapterLayout::transformers4).is_fused
                ? ""
                : "; the layout transformers4 has a module for each");
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

/// Throws where a file would not tell of which layout it is: parameters that lie across are named
/// alike in both, and only shapes differ.
void require_told_apart(const std::vector<WrittenModule>& modules,
                        std::span<const AdapterSpec> adapters) {
  const WrittenModule* alike = nullptr;
  for (const WrittenModule& written : modules) {
    const auto first = static_cast<std::size_t>(written.module.members.front().adapter);
    if (!adapters[first].site.lies_across) continue;
    if (written.module.in != written.module.out) return;
    alike = &written;
  }
  require(alike == nullptr, ErrorKind::usage,
          "{} has {} inputs and outputs: a file with its adapters as the only ones of experts "
          "would not "
          "tell which are which; those of gates, ups and downs together do",
          alike != nullptr ? alike->module.target : "", alike != nullptr ? alike->module.in : 0);
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
  require_told_apart(written, adapters);
  return written;
}

bool can_be_written(std::span<const AdapterSpec> adapters, AdapterLayout layout,
                    bool rank_stabilised) {
  try {
    (void)written_modules(adapters, layout, rank_stabilised);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace moesaic
