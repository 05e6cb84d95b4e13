#include "src/lora/adapter_set.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/checksum.h"
#include "base/counter_random.h"
#include "base/dtype.h"
#include "base/error.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"

namespace moesaic {
namespace {

/// Packed factors start on cache lines.
constexpr std::int64_t kAlignment = 64;

std::int64_t packed_bytes(Format format, std::int64_t rows, std::int64_t depth) {
  return round_up(panel_count(rows) * panel_bytes({.format = format}, depth), kAlignment);
}

/// Of A, unless it is shared, and B.
std::int64_t packed_bytes(const AdapterSpec& spec, Format format) {
  const std::int64_t a = spec.shares_a ? 0 : packed_bytes(format, spec.rank, spec.site.in);
  return a + packed_bytes(format, spec.site.out, spec.rank);
}

/// Adapters of one stacked matrix, which follow one another.
struct CompositeSpec {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t rank = 0;  // of all together
  std::int64_t in = 0;
  std::int64_t out = 0;

  [[nodiscard]] std::int64_t packed_bytes(Format format) const {
    return moesaic::packed_bytes(format, rank, in) + moesaic::packed_bytes(format, out, rank);
  }
};

std::vector<CompositeSpec> find_composites(std::span<const AdapterSpec> specs) {
  std::vector<CompositeSpec> found;
  const AdapterSpec* last = nullptr;  // of a stacked matrix
  for (const AdapterSpec& spec : specs) {
    const AdapterSite& site = spec.site;
    if (site.stacked_rows == 0) {
      last = nullptr;
      continue;
    }
    const bool is_next = last != nullptr && last->site.layer == site.layer &&
                         last->site.in == site.in && last->site.stacked_rows == site.stacked_rows &&
                         last->site.first_row < site.first_row;
    if (!is_next) {
      found.push_back({.first = &spec - specs.data(), .in = site.in, .out = site.stacked_rows});
    }
    ++found.back().count;
    found.back().rank += spec.rank;
    last = &spec;
  }
  return found;
}

template <typename Element>
void pack_rows(MatrixView<const Element> rows, const PackedMatrix& packed) {
  auto* panel = const_cast<std::byte*>(packed.panels);
  std::array<const Element*, kPanelColumns> starts{};
  for (std::int64_t first = 0; first < rows.rows(); first += kPanelColumns) {
    const std::int64_t count = std::min(kPanelColumns, rows.rows() - first);
    for (std::int64_t i = 0; i < count; ++i) {
      starts[static_cast<std::size_t>(i)] = rows.row(first + i).data();
    }
    const auto sources = std::span(starts).first(static_cast<std::size_t>(count));
    if constexpr (std::is_same_v<Element, float>) {
      f32_format::pack_panel(sources, rows.cols(), reinterpret_cast<float*>(panel));
    } else {
      bf16_format::pack_panel(sources, rows.cols(), reinterpret_cast<BFloat16*>(panel));
    }
    panel += packed.panel_stride();
  }
}

/// `rounded` is scratch memory.
void pack_factor(MatrixView<const float> factor, const PackedMatrix& packed,
                 std::vector<BFloat16>& rounded) {
  if (packed.layout.format == Format::f32) return pack_rows(factor, packed);
  rounded.resize(static_cast<std::size_t>(factor.rows() * factor.cols()));
  std::transform(factor.data(), factor.data() + rounded.size(), rounded.begin(), to_bfloat16);
  pack_rows(MatrixView<const BFloat16>(rounded.data(), factor.rows(), factor.cols()), packed);
}

}  // namespace

float adapter_scale(double alpha, std::int64_t rank, bool rank_stabilised) noexcept {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rank_stabilised ? std::sqrt(r) : r));
}

AdapterSet::AdapterSet(std::vector<AdapterSpec> specs, Format format) : specs_(std::move(specs)) {
  num_common_ = put_common_first(specs_, &AdapterSpec::site);
  place_masters();
  place_packed(format);
}

std::int64_t AdapterSet::bytes(std::span<const AdapterSpec> specs, Format format) {
  std::int64_t total = 0;
  for (const AdapterSpec& spec : specs) {
    total += 4 * spec.num_values() + packed_bytes(spec, format);
  }
  for (const CompositeSpec& its : find_composites(specs)) total += its.packed_bytes(format);
  return total;
}

void AdapterSet::place_masters() {
  std::int64_t end = 0;
  const auto place = [&](std::int64_t rows, std::int64_t cols) {
    return FactorPlace{std::exchange(end, end + rows * cols), rows, cols};
  };
  for (const AdapterSpec& spec : specs_) {
    assert(!spec.shares_a || (!places_.empty() && spec.rank == places_.back().a.rows));
    const FactorPlace a = spec.shares_a ? places_.back().a : place(spec.rank, spec.site.in);
    places_.push_back({a, place(spec.site.out, spec.rank)});
  }
  masters_ = Buffer<float>(end);
}

void AdapterSet::place_packed(Format format) {
  std::int64_t total = 0;
  for (const AdapterSpec& spec : specs_) total += packed_bytes(spec, format);
  const std::vector<CompositeSpec> composites = find_composites(specs_);
  for (const CompositeSpec& its : composites) total += its.packed_bytes(format);
  panels_ = ByteBuffer(static_cast<std::size_t>(total));
  const std::byte* next = panels_.data();
  const auto place = [&](std::int64_t rows, std::int64_t depth) {
    const PackedMatrix matrix{
        .layout = {.format = format}, .rows = rows, .depth = depth, .panels = next};
    next += packed_bytes(format, rows, depth);
    return matrix;
  };
  for (const AdapterSpec& spec : specs_) {
    const PackedMatrix a = spec.shares_a ? packed_.back().a : place(spec.rank, spec.site.in);
    packed_.push_back({.a = a,
                       .b = place(spec.site.out, spec.rank),
                       .scale = spec.scale,
                       .first_row = spec.site.first_row,
                       .index = narrow<std::int32_t>(packed_.size()),
                       .key = checksum(spec.site.module)});
  }
  for (const CompositeSpec& its : composites) {
    const auto first = static_cast<std::size_t>(its.first);
    composites_.push_back(
        {.a = place(its.rank, its.in),
         .b = place(its.out, its.rank),
         .scale = packed_[first].scale,
         .parts = std::span(packed_).subspan(first, static_cast<std::size_t>(its.count))});
  }
}

const Adapter& AdapterSet::of_matrix(std::int64_t first, std::int64_t count) const {
  const auto at = static_cast<std::size_t>(first);
  if (count == 1 && specs_[at].site.stacked_rows == 0) return packed_[at];
  const Adapter* const begin = &packed_[at];
  const auto found =
      std::ranges::find(composites_, begin, [](const Adapter& its) { return its.parts.data(); });
  require(found != composites_.end() && std::ssize(found->parts) == count, ErrorKind::internal,
          "adapters {} to {} are not those of one matrix", first, first + count);
  return *found;
}

AdapterFactors<float> AdapterSet::factors(std::int64_t index) {
  return factors_at<float>(index);
}

AdapterFactors<const float> AdapterSet::factors(std::int64_t index) const {
  return factors_at<const float>(index);
}

std::int64_t AdapterSet::num_common_values() const noexcept {
  return num_common_ < size() ? places_[static_cast<std::size_t>(num_common_)].a.first
                              : masters_.size();
}

void AdapterSet::pack(ThreadPool& pool) {
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(size() + std::ssize(composites_), [&](std::int64_t index, int worker) {
    Scratch& own = scratch[static_cast<std::size_t>(worker)];
    const auto at = static_cast<std::size_t>(index);
    if (index >= size()) return pack_composite(composites_[at - packed_.size()], own);
    std::vector<BFloat16>& rounded = own.rounded;
    const AdapterFactors<const float> its = std::as_const(*this).factors(index);
    const Adapter& packed = packed_[at];
    if (!spec(index).shares_a) pack_factor(its.a, packed.a, rounded);
    pack_factor(its.b, packed.b, rounded);
  });
}

void AdapterSet::pack_composite(const Adapter& composite, Scratch& scratch) const {
  std::vector<float>& values = scratch.factor;
  const auto matrix_of = [&values](const PackedMatrix& packed) {
    values.assign(static_cast<std::size_t>(packed.rows * packed.depth), 0.0F);
    return MatrixView<float>(values.data(), packed.rows, packed.depth);
  };
  const MatrixView<float> a = matrix_of(composite.a);
  for_each_part(composite, [&](const Adapter& part, std::int64_t first) {
    const MatrixView<const float> its = factors(part.index).a;
    std::copy_n(its.data(), its.rows() * its.cols(), a.row(first).data());
  });
  pack_factor(a, composite.a, scratch.rounded);
  const MatrixView<float> b = matrix_of(composite.b);
  for_each_part(composite, [&](const Adapter& part, std::int64_t first) {
    const MatrixView<const float> its = factors(part.index).b;
    for (std::int64_t row = 0; row < its.rows(); ++row) {
      std::ranges::copy(its.row(row), b.row(part.first_row + row).data() + first);
    }
  });
  pack_factor(b, composite.b, scratch.rounded);
}

void initialize(AdapterSet& set, std::uint64_t seed) {
  for (std::int64_t index = 0; index < set.size(); ++index) {
    const AdapterSpec& spec = set.spec(index);
    const AdapterFactors<float> its = set.factors(index);
    std::fill_n(its.b.data(), its.b.rows() * its.b.cols(), 0.0F);
    if (spec.shares_a) continue;
    const CounterRandom random = CounterRandom(seed).at(checksum(spec.site.module));
    const double bound = 1 / std::sqrt(static_cast<double>(spec.site.in));
    for (std::int64_t i = 0; i < its.a.rows() * its.a.cols(); ++i) {
      const double unit = random.unit(static_cast<std::uint64_t>(i));
      its.a.data()[i] = static_cast<float>((2 * unit - 1) * bound);
    }
  }
}

std::array<std::int64_t, kAdapterKindNames.size()> trainable_numbers(
    std::span<const AdapterSpec> specs) {
  std::array<std::int64_t, kAdapterKindNames.size()> numbers{};
  for (const AdapterSpec& spec : specs) {
    numbers[static_cast<std::size_t>(spec.site.kind)] += spec.num_values();
  }
  return numbers;
}

std::vector<std::int64_t> indices_in(std::span<const AdapterSpec> all, const AdapterSet& set) {
  std::unordered_map<std::string_view, std::int64_t> by_module;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) {
    by_module.emplace(all[static_cast<std::size_t>(i)].site.module, i);
  }
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const auto found = by_module.find(set.spec(i).site.module);
    require(found != by_module.end(), ErrorKind::internal, "{} is not an adapter of the model",
            set.spec(i).site.module);
    indices.push_back(found->second);
  }
  return indices;
}

std::vector<AdapterSpec> specs_of_rank(std::span<const AdapterSpec> specs,
                                       const HeldExperts& held) {
  std::vector<AdapterSpec> own;
  std::ranges::copy_if(specs, std::back_inserter(own), [&](const AdapterSpec& spec) {
    return spec.site.expert < 0 || held.contains(spec.site.layer, spec.site.expert);
  });
  return own;
}

}  // namespace moesaic
