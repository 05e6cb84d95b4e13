#include <algorithm>

#include "src/checkpoint/matrix_source.h"
#include "src/lora/adapter_files.h"
#include "src/lora/module_factors.h"

namespace moesaic {
namespace {

/// Whether any of these rows holds anything but zeros.
bool holds_values(const MatrixSource& matrix, std::int64_t first, std::int64_t count) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  for (std::int64_t i = first; i < first + count; ++i) {
    matrix.read_rows(i, 1, row);
    if (std::ranges::any_of(row, [](float value) { return value != 0; })) return true;
  }
  return false;
}

}  // namespace

/// Of the members of a fused module, those with anything but zeros in A or B.
std::vector<bool> AdapterFiles::filled_parts(const Module& module) const {
  const std::vector<PeftMember>& members = module.layout.members;
  const auto place_of = [&](std::size_t m) -> const Place& {
    return places_[static_cast<std::size_t>(members[m].adapter)];
  };
  const std::int64_t rank = specs_[static_cast<std::size_t>(members.front().adapter)].rank;
  const ModuleFactors factors(module.layout, *module.a, *module.b);
  const MatrixSource a(factors.a());
  std::vector<bool> filled(members.size());
  for (std::size_t m = 0; m < members.size(); ++m) {
    const Place& place = place_of(m);
    filled[m] = holds_values(a, place.expert * module.rank + place.first_rank, rank);
  }
  if (std::ranges::find(filled, false) == filled.end()) return filled;
  const MatrixSource b(factors.b());
  std::vector<float> row(static_cast<std::size_t>(b.cols()));
  for (std::int64_t o = 0; o < b.rows(); ++o) {
    b.read_rows(o, 1, row);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const AdapterSpec& spec = specs_[static_cast<std::size_t>(members[m].adapter)];
      const std::int64_t own = o - place_of(m).first_out;
      if (own < 0 || own >= spec.site.out) continue;
      for (std::int64_t r = 0; r < rank && !filled[m]; ++r) {
        const std::int64_t column = place_of(m).column(r, module.layout.experts);
        filled[m] = row[static_cast<std::size_t>(column)] != 0;
      }
    }
  }
  return filled;
}

/// Of a module of zeros alone nobody can tell which parts were targets: it keeps all. An A that is
/// shared stays with both.
void AdapterFiles::drop_empty_parts() {
  std::vector<bool> stays(specs_.size(), true);
  for (const Module& module : modules_) {
    if (module.layout.experts == 0) continue;
    const std::vector<bool> filled = filled_parts(module);
    if (std::ranges::find(filled, true) == filled.end()) continue;
    for (std::size_t m = 0; m < filled.size(); ++m) {
      stays[static_cast<std::size_t>(module.layout.members[m].adapter)] = filled[m];
    }
  }
  for (std::size_t i = 1; i < specs_.size(); ++i) {
    if (specs_[i].shares_a) stays[i] = stays[i - 1] = stays[i] || stays[i - 1];
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!stays[i]) continue;
    if (kept < i) {
      specs_[kept] = std::move(specs_[i]);
      places_[kept] = places_[i];
    }
    ++kept;
  }
  specs_.resize(kept);
  places_.resize(kept);
}

}  // namespace moesaic
