#include <array>

#include "launch/options/option_table.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::uint32_t kRun =
    verb_bit(Verb::generate) | verb_bit(Verb::score) | verb_bit(Verb::bench_model);
constexpr std::uint32_t kPlan = verb_bit(Verb::plan);

constexpr std::string_view kExchange = "Exchange";

constexpr std::array kRows = {
    OptionRow{"defer", '\0', "D", &O::defer, kExchange, kRun | kPlan,
              "experts of least weight of each token, at most top-k, whose results a layer leaves "
              "to the next one, so that no rank waits for them; approximate",
              0, 1e6},
    OptionRow{
        "wire", '\0', "FORM", one_of<&O::wire>(), kExchange, kRun | kPlan,
        "what rows and results of experts are rounded to, also where they do not travel: bf16: "
        "results; int8: both, with a scale for 128 values"},
    OptionRow{
        "half-batches", '\0', "WHEN", one_of<&O::half_batches>(), kExchange,
        kRun | verb_bit(Verb::chat),
        "run a pass of many rows as two halves in turn, so that one computes while the rows of "
        "the other travel; auto: between nodes, where it is measured to be faster"},
};

}  // namespace

std::span<const OptionRow> exchange_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
