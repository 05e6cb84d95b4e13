#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::string_view kJob = "Job";
constexpr std::string_view kNodes = "Nodes";

constexpr std::array kRows = {
    OptionRow{"job", '\0', "VERB", one_of<&O::plan_job>(), kJob, verbs::kPlan,
              "what is going to be run"},
    OptionRow{"shape", '\0', "NAME", &O::shape, kJob, verbs::kPlan,
              "one layer of experts in place of a model, as moesaic study point --job layer runs "
              "it: deepseek-v3, qwen3-30b, mixtral, granite, or four numbers ExHxIxK (experts, "
              "hidden, intermediate, experts a token)"},
    OptionRow{"experts", '\0', "N", &O::shape_experts, kJob, verbs::kPlan,
              "of --shape; 0: as many as it has", 0, 1 << 20},
    OptionRow{"prompt-tokens", '\0', "N", &O::prompt_tokens, kJob, verbs::kPlan,
              "of each text of generate, which --predict continues", 1, 1e12},
    OptionRow{"routing", '\0', "WHICH", &O::plan_routing, kJob, verbs::kPlan,
              "how often tokens choose each expert: even; zipf:S, the n-th most popular n^-S as "
              "likely as the first; model, as the model chooses for --text; or a file, JSON with "
              "experts_per_token and rows [layers][experts]"},
    OptionRow{
        "text", '\0', "FILE", &O::plan_text, kJob, verbs::kPlan,
        "for --routing model: its first 4,096 tokens are run through the model here, with one "
        "layer of it in memory at a time"},
    OptionRow{"ranks", '\0', "N", &O::plan_ranks, kNodes, verbs::kPlan, "of the job", 1, 1e6},
    OptionRow{"ranks-per-node", '\0', "N", &O::ranks_per_node, kNodes, verbs::kPlan,
              "on each node; 0: all on one", 0, 1e6},
    OptionRow{"memory", '\0', "BYTES", &O::memory_limit, kNodes, verbs::kPlan,
              "memory of a node, such as 256G; auto: what is available here"},
    OptionRow{"machine", '\0', "FILE", &O::machine, kNodes, verbs::kPlan,
              "what a node does, as moesaic doctor --measure=FILE wrote it there; without it no "
              "times are told"},
    OptionRow{.name = "measure",
              .value = "FILE",
              .field = &O::measure,
              .group = "Machine",
              .verbs = verbs::kDoctor,
              .help = "measure what the nodes of this job and their GPUs do, which takes most of a "
                      "minute, and "
                      "write it to FILE for --machine=FILE of moesaic plan",
              .may_differ = true},
};

}  // namespace

std::span<const OptionRow> plan_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
