#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_details.h"

namespace moesaic {
namespace {

/// In the order in which somebody new meets them.
constexpr std::array kVerbs = {
    VerbRow{Verb::chat, "chat", "-m DIR [-sys TEXT]", "talk with a model", kChatDetails},
    VerbRow{Verb::generate, "generate", "-m DIR -p TEXT | -f FILE", "continue prompts",
            kGenerateDetails},
    VerbRow{Verb::serve, "serve", "-m DIR [--port N]", "answer clients of OpenAI's API over HTTP",
            kServeDetails},
    VerbRow{Verb::score, "score", "-m DIR -f FILE", "loss and perplexity of texts, log-likelihoods",
            kScoreDetails},
    VerbRow{Verb::sft, "sft", "-m DIR --data FILE -o OUTDIR",
            "fine-tune adapters (LoRA) on all ranks"},
    VerbRow{Verb::tokenize, "tokenize", "-m DIR -p TEXT | -f FILE",
            "token ids and pieces of a text"},
    VerbRow{Verb::inspect, "inspect", "DIR", "what a checkpoint holds"},
    VerbRow{Verb::convert, "convert", "-m DIR -o OUTDIR",
            "pack a model once, to load it quickly; or merge an adapter"},
    VerbRow{Verb::plan, "plan", "-m DIR|--shape NAME --ranks N",
            "what a job would take on nodes, before it is started; starts no MPI", kPlanDetails},
    VerbRow{Verb::doctor, "doctor", "", "what this machine, this MPI and this launch give"},
    VerbRow{Verb::bench_model, "bench model", "-m DIR",
            "speed of prompt processing and generation"},
    VerbRow{Verb::bench_kernels, "bench kernels", "", "speed of the products, beside the machine's",
            kKernelsDetails},
    VerbRow{Verb::bench_layer, "bench layer", "",
            "speed of a whole MoE layer, from gate to combine", kLayerDetails},
    VerbRow{Verb::bench_exchange, "bench exchange", "",
            "speed of an MoE layer's exchange of rows, beside MPI's", kExchangeDetails},
    VerbRow{Verb::bench_sft, "bench sft", "-m DIR", "speed and memory of fine-tuning",
            kBenchSftDetails},
    VerbRow{Verb::study_run, "study run", "CONFIG",
            "run the points of a scaling study that are not there yet", kStudyDetails},
    VerbRow{Verb::study_points, "study points", "CONFIG",
            "how many points a scaling study has, and which"},
    VerbRow{Verb::study_report, "study report", "CONFIG",
            "tables and plots of the points that are there: report.html"},
    VerbRow{Verb::study_predict, "study predict", "CONFIG [--ranks LIST]",
            "what more ranks would give, by rates fitted to the points that are there"},
    VerbRow{Verb::study_export_extrap, "study export extrap", "CONFIG",
            "the points that are there as Extra-P reads them"},
    VerbRow{Verb::study_export_smpi, "study export smpi", "CONFIG [--ranks LIST]",
            "predicted passes as SimGrid's smpirun -replay reads them", kSmpiDetails},
    VerbRow{Verb::study_point, "study point", "-m DIR | --shape NAME",
            "measure one point, as study run has each measured", kPointDetails},
};

}  // namespace

std::span<const VerbRow> verb_table() noexcept {
  return kVerbs;
}

}  // namespace moesaic
