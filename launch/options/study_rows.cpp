#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::string_view kStudy = "Study";
constexpr std::string_view kMeasurement = "Measurement";

constexpr double kMany = 1e12;

constexpr std::array kRows = {
    OptionRow{"study", '\0', "CONFIG", &O::study_config, kStudy, verbs::kStudies,
              "the file that describes the study (docs/scaling.md); the word after the verb"},
    OptionRow{"retry", '\0', "", &O::retry, kStudy, verbs::kStudyRun,
              "run points again that failed"},
    OptionRow{"point", '\0', "N", &O::study_point, kStudy, verbs::kStudyRun,
              "only the N-th point, counted from 1, as a task of a job array; 0: all", 0, kMany},

    OptionRow{"ranks", '\0', "LIST", &O::predict_ranks, kStudy, verbs::kStudyPredict,
              "to predict, with commas", 1, 1e6},
    OptionRow{"ranks", '\0', "LIST", &O::smpi_ranks, kStudy, verbs::kStudySmpi,
              "to write traces of, with commas", 1, 1e6},
    OptionRow{"price-per-node-hour", '\0', "X", &O::price_per_node_hour, kStudy,
              verbs::kStudyReport, "also tell what a million tokens cost, in the same money", 0,
              kMany},

    OptionRow{"job", '\0', "NAME", one_of<&O::job>(), kMeasurement, verbs::kStudyPoint,
              "prompt: sequences of --n-prompt tokens; generate: --n-gen tokens of each, one at a "
              "time; sft: a step of fine-tuning over samples of --n-prompt tokens; of --shape "
              "layer: a layer of experts, from router to sums, over as many tokens as prompt; "
              "exchange: its rows there and back, without experts"},
    OptionRow{"shape", '\0', "NAME", &O::shape, kMeasurement, verbs::kStudyPoint,
              "one layer of random weights in place of a model: deepseek-v3, qwen3-30b, mixtral, "
              "granite, or four numbers ExHxIxK (experts, hidden, intermediate, experts a token)"},
    OptionRow{"experts", '\0', "N", &O::shape_experts, kMeasurement, verbs::kStudyPoint,
              "of --shape; 0: as many as it has", 0, 1 << 20},
    OptionRow{"routing", '\0', "WHICH", &O::plan_routing, kMeasurement, verbs::kStudyPoint,
              "of --shape: how often tokens choose each expert: even; zipf:S, the n-th most "
              "popular n^-S as likely as the first; or a file, as in moesaic plan"},
    OptionRow{"sequences", '\0', "N", &O::sequences, kMeasurement, verbs::kStudyPoint,
              "or samples, that all ranks share", 1, kMany},
    OptionRow{"n-prompt", 'p', "N", &O::point_prompt, kMeasurement, verbs::kStudyPoint,
              "tokens of a sequence of --job prompt, of a sample of --job sft", 1,
              kMostBenchTokens},
    OptionRow{"n-gen", 'n', "N", &O::point_gen, kMeasurement, verbs::kStudyPoint,
              "tokens of a sequence of --job generate", 1, kMostBenchTokens},
    OptionRow{
        .name = "text",
        .value = "FILE",
        .field = &O::bench_text,
        .group = kMeasurement,
        .verbs = verbs::kStudyPoint,
        .help =
            "feed the tokens of a text, over and over; random: random tokens, which choose other "
            "experts than texts do. Without it a text of the program's own, or random tokens "
            "if the model has no tokenizer",
        .may_differ = true},
    OptionRow{"seed", 's', "N", &O::seed, kMeasurement, verbs::kStudyPoint,
              "of random tokens and choices", 0, 9e18},
    OptionRow{"repetitions", 'r', "N", &O::repetitions, kMeasurement, verbs::kStudyPoint,
              "timed runs, after one that does not count", 1, 1e6},
    OptionRow{"no-roofs", '\0', "", &O::no_roofs, kMeasurement, verbs::kStudyPoint,
              "do not measure what the machine gives at most: roof_share stays empty"},
};

}  // namespace

std::span<const OptionRow> study_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
