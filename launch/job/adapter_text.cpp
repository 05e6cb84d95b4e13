#include "launch/job/adapter_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json.h"

namespace moesaic {
namespace {

/// "1,234,567".
std::string with_commas(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::int64_t at = std::ssize(digits) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

template <typename Member>
std::string range_text(std::span<const AdapterSpec> adapters, Member member) {
  const auto [least, most] = std::ranges::minmax_element(adapters, {}, member);
  const auto low = std::invoke(member, *least);
  const auto high = std::invoke(member, *most);
  return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
}

}  // namespace

std::string trainable_text(std::span<const AdapterSpec> adapters) {
  const auto numbers = trainable_numbers(adapters);
  std::string text = with_commas(std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0}));
  std::string_view before = ": ";
  for (std::size_t kind = 0; kind < numbers.size(); ++kind) {
    if (numbers[kind] == 0) continue;
    text += fmt::format("{}{} {}", before, kAdapterKindNames[kind], with_commas(numbers[kind]));
    before = ", ";
  }
  return text;
}

std::string adapter_text(std::span<const AdapterSpec> adapters, AdapterLayout layout) {
  return fmt::format(
      "rank {}, scale {}, layout {}, numbers {}", range_text(adapters, &AdapterSpec::rank),
      range_text(adapters, &AdapterSpec::scale),
      kAdapterLayoutNames[static_cast<std::size_t>(layout)], trainable_text(adapters));
}

std::string adapter_json(const AdapterFiles& adapter) {
  const auto numbers = trainable_numbers(adapter.specs());
  JsonWriter kinds;
  for (std::size_t kind = 0; kind < numbers.size(); ++kind) {
    kinds.field(kAdapterKindNames[kind], numbers[kind]);
  }
  const auto [least, most] = std::ranges::minmax_element(adapter.specs(), {}, &AdapterSpec::rank);
  return JsonWriter()
      .field("layout", kAdapterLayoutNames[static_cast<std::size_t>(adapter.description().layout)])
      .field("base_model", adapter.description().base_model)
      .field("rank_stabilised", adapter.description().rank_stabilised)
      .field("matrices", std::ssize(adapter.specs()))
      .field("least_rank", least->rank)
      .field("most_rank", most->rank)
      .raw_field("numbers", kinds.text())
      .field("bytes", adapter.bytes())
      .text();
}

}  // namespace moesaic
