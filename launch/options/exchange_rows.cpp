#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

using O = Options;

/// Where other ways of the exchange are tried.
constexpr std::uint32_t kPasses =
    verbs::kGenerate | verbs::kServe | verbs::kScore | verbs::kBenchModel | verbs::kStudyPoint;

constexpr std::string_view kExchange = "Exchange";

constexpr std::array kRows = {
    OptionRow{"defer", '\0', "D", &O::defer, kExchange, kPasses | verbs::kPlan,
              "experts of least weight of each token, at most top-k, whose results a layer leaves "
              "to the next one, so that no rank waits for them; approximate",
              0, 1e6},
    OptionRow{
        "wire", '\0', "LIST", &O::wires, kExchange, verbs::kBenchExchange,
        "what rows and results are rounded to, with commas: exact, bf16 (results), int8 (both)"},
    OptionRow{
        "wire", '\0', "FORM", one_of<&O::wire>(), kExchange, kPasses | verbs::kPlan,
        "what rows and results of experts are rounded to, also where they do not travel: bf16: "
        "results; int8: both, with a scale for 128 values"},
    OptionRow{
        "combine", '\0', "HOW", one_of<&O::combine>(), kExchange,
        kPasses | verbs::kPlan | verbs::kBenchExchange,
        "where the results of a token's experts are added: ordered: at home, one after the other; "
        "fast: those of one rank there, then those of a node, so that one row comes back from it, "
        "not one for each expert; approximate, and depends on ranks, nodes and --placement"},
    OptionRow{
        "placement", '\0', "WHERE", &O::placement, kExchange,
        kPasses | verbs::kPlan | verbs::kChat | verbs::kSft | verbs::kBenchSft,
        "which rank has which experts: contiguous slices; round_robin, dealt like cards; or a "
        "FILE of --record-load: in each layer the experts with most rows first, each to the "
        "rank that has fewest so far. The same bytes come out"},
    OptionRow{.name = "record-load",
              .value = "FILE",
              .field = &O::record_load,
              .group = kExchange,
              .verbs = verbs::kGenerate | verbs::kServe | verbs::kScore,
              .help = "write how many rows the experts of each layer got: for --placement, and for "
                      "moesaic plan",
              .may_differ = true},
    OptionRow{
        "half-batches", '\0', "WHEN", one_of<&O::half_batches>(), kExchange,
        kPasses | verbs::kPlan | verbs::kChat,
        "run a pass as two halves in turn, so that one computes while the rows of the other "
        "travel; on: every pass, also one of few rows; auto: between nodes, passes of 64 rows and "
        "more, where it is measured to be faster"},
    OptionRow{
        "check-rows", '\0', "N", &O::check_rows, kExchange, verbs::kExchanging,
        "each N-th exchange of rows carries checksums: rows that arrive damaged end the job, and "
        "are told with sender, receiver and layer; 0: none, 1: all",
        0, 1e12},
    OptionRow{.name = "trace-dir",
              .value = "DIR",
              .field = &O::trace_dir,
              .group = kExchange,
              .verbs = verbs::kExchanging,
              .help = "if the job fails, each rank leaves its last 256 events of exchanges there: "
                      "rank-R.jsonl, in the place of those of an earlier job",
              .may_differ = true},
};

}  // namespace

std::span<const OptionRow> exchange_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
