#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::string_view kGpus = "GPUs";

constexpr std::array kRows = {
    OptionRow{
        "gpu-experts", '\0', "WHICH", &O::gpu_experts, kGpus,
        verbs::kInference | verbs::kBenchLayer | verbs::kPlan,
        "experts of each layer whose weights are in the memory of GPUs, and which run there: "
        "none; all; N of each layer, spread over the ranks; auto: as many as there is room "
        "for; FILE: JSON, {\"LAYER\": [expert, ...], ...}. Others, and those of ranks without "
        "a GPU, run on the CPU. bench layer takes none, all or N"},
    OptionRow{"gpu-memory", '\0', "PERCENT", &O::gpu_memory, kGpus, verbs::kInference,
              "of each GPU's memory that --gpu-experts may take", 1, 100},
    OptionRow{
        "gpu-memory", '\0', "BYTES", &O::gpu_bytes, kGpus, verbs::kPlan,
        "memory of a rank's GPU that experts and their rows may take, such as 72G; without it "
        "what they take is told, and nothing refused"},
    OptionRow{"gpu-graph", '\0', "WHEN", one_of<&O::gpu_graph>(), kGpus,
              verbs::kInference | verbs::kBenchLayer | verbs::kPlan,
              "on: batches of up to 256 rows are planned on the GPU and launched as one graph, for "
              "less work of the host in each layer; the same bits"},
    OptionRow{
        "gpu-kernel", '\0', "KIND", one_of<&O::gpu_kernel>(), kGpus,
        verbs::kInference | verbs::kBenchLayer | verbs::kBenchKernels | verbs::kPlan,
        "what multiplies on tensor cores. mma: kernels for every chip and format; cutlass: "
        "CUTLASS's, on sm_100 and sm_103, for --nvfp4-activations nvfp4 and weights in nvfp4 "
        "whose sizes are multiples of 128: a library of its own (docs/gpu.md), which has been "
        "compiled and not been run so far"},
    OptionRow{
        .name = "cutlass",
        .value = "FILE",
        .field = &O::cutlass,
        .group = kGpus,
        .verbs = verbs::kInference | verbs::kBenchLayer | verbs::kBenchKernels | verbs::kDoctor,
        .help = "the library of CUTLASS's kernels; by default the libmoesaic_cutlass.so beside the "
                "program, or that the system finds",
        .may_differ = true},
    OptionRow{"expert-load", '\0', "FILE", &O::expert_load, kGpus, verbs::kInference | verbs::kPlan,
              "how often experts are chosen, as generate and score record it, for --gpu-experts "
              "auto, which takes those of most rows first"},
    OptionRow{
        "device", '\0', "WHERE", one_of<&O::device>(), kGpus, verbs::kBenchKernels,
        "cpu; gpu: products of all matrices of --footprint in one launch, of which us is one's "
        "share, in the formats that GPUs have kernels for"},
    OptionRow{.name = "nccl",
              .value = "FILE",
              .field = &O::nccl,
              .group = kGpus,
              .verbs = verbs::kInference | verbs::kBenchLayer | verbs::kDoctor,
              .help = "the library that --transport nccl takes, such as /opt/nccl/libnccl.so.2; by "
                      "default the libnccl.so.2 that the system finds",
              .may_differ = true},
};

}  // namespace

std::span<const OptionRow> gpu_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
