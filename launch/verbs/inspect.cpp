#include <atomic>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/small_file.h"
#include "comm/long_work.h"
#include "kernels/cuda/mlp_products.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/verbs/inspect_report.h"
#include "src/checkpoint/mapped_file.h"
#include "src/model/model_adapters.h"
#include "src/model/model_weights.h"
#include "src/model/weight_converter.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

/// What the weights take in memory, as the files have them.
PackingSummary summarize_packing(const ModelFiles& files, const ModelConfig& config) {
  ModelWeights target;
  const WeightRequest request{.layouts = LayoutChoice(Precision::bf16, {})};
  const WeightPlan plan = plan_weights(files, config, request, target);
  PackingSummary summary;
  for (const LayerConfig& layer : config.layers) {
    if (summary.missing_on_gpus.empty()) {
      summary.missing_on_gpus = layer.feed_forward->missing_on_gpus();
    }
  }
  for (const PlannedWeight& weight : plan.weights) {
    if (weight.matrix == nullptr) continue;
    auto& bytes = weight.role == WeightRole::expert ? summary.experts : summary.others;
    bytes[layout_name(weight.packing.layout)] +=
        weight.stored != nullptr ? weight.stored->bytes : describe_packed(weight).bytes;
    if (weight.role != WeightRole::expert || !summary.missing_on_gpus.empty()) continue;
    summary.missing_on_gpus = missing_on_device({.layout = weight.packing.layout});
  }
  return summary;
}

TokenizerSummary summarize_tokenizer(const ModelFiles& files, const ModelConfig& config) {
  TokenizerSummary summary;
  const std::string path = files.path_of("tokenizer.json");
  if (!file_exists(path)) return summary;
  const Json file = Json::read_file(path, kMaxListBytes);
  const auto kind = file.at("model").find("type");
  summary.kind = kind ? kind->as_string() : "unknown";
  if (summary.kind != "BPE") return summary;
  const Tokenizer tokenizer = Tokenizer::from_directory(files.directory(), file);
  for (std::int64_t id = config.vocab_size; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.token(narrow<std::int32_t>(id)).empty()) ++summary.ids_beyond;
  }
  return summary;
}

/// Prints what is known of the model, and then tells what is wrong with it.
ModelFiles report_model(const Options& options) {
  require(!options.model.empty(), ErrorKind::usage, "inspect what? moesaic inspect DIR");
  InspectReport report;
  report.files = ModelFiles::open(options.model);
  report.config = read_model_config(options.model);
  const ModelNames names = report.files.names(report.config);
  report.facts = count_parameters(report.config, names);
  if (const Checkpoint* checkpoint = report.files.checkpoint()) {
    report.inventory = take_inventory(*checkpoint, names);
  }
  if (options.lora) {
    report.adapter = AdapterFiles::open(*options.lora, adapter_sites(names));
    (void)read_whole(*report.adapter);  // refuses what a run would
  }
  std::exception_ptr broken;  // the first thing that is, told after what is known
  const auto look = [&](const auto& part) {
    try {
      part();
    } catch (const Error&) {
      if (!broken) broken = std::current_exception();
    }
  };
  const bool is_whole = !report.inventory || report.inventory->missing.empty();
  look([&] {
    if (report.files.packed() != nullptr) report.files.packed()->verify_copies(options.verify);
    if (is_whole) report.packing = summarize_packing(report.files, report.config);
  });
  look([&] { report.tokenizer = summarize_tokenizer(report.files, report.config); });
  options.json ? print_json(report) : print_text(report);
  flush_output();
  if (broken) std::rethrow_exception(broken);
  if (is_whole) return report.files;
  const std::vector<std::string>& missing = report.inventory->missing;
  fail(ErrorKind::file, "{}: {} {} missing, such as {}", options.model, missing.size(),
       missing.size() == 1 ? "tensor is" : "tensors are", missing.front());
}

/// Compares all checksums.
void verify(const Runtime& runtime, const PackedDirectory& packed, LongWork& work) {
  Progress progress("verifying", !runtime.log().enabled(LogLevel::info));
  std::atomic<std::int64_t> done = 0;
  const std::vector<PackedEntry>& entries = packed.manifest().entries;
  const std::int64_t total = packed.manifest().total_bytes();
  runtime.compute().pool->parallel_for(std::ssize(entries), [&](std::int64_t index, int worker) {
    const PackedEntry& entry = entries[static_cast<std::size_t>(index)];
    const std::span<const std::byte> bytes = packed.bytes(entry);
    prefetch(bytes);
    reading(packed, [&] { packed.verify(entry, bytes); });
    release(bytes);
    done += entry.bytes;
    if (worker != 0) return;
    work.advance(done, total);
    progress.update(done, total);
  });
  progress.update(total, total);
}

/// Compares all bytes of a checkpoint between the ranks.
void compare(const Runtime& runtime) {
  (void)read_model(runtime);  // which does so, with --verify
  runtime.log().once(LogLevel::info, "all ranks have the same bytes");
}

}  // namespace

void run_inspect(Runtime& runtime) {
  const Options& options = runtime.options();
  ModelFiles files;  // of rank 0, which does it all
  std::int64_t is_packed = 0;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    files = report_model(options);
    is_packed = files.packed() != nullptr ? 1 : 0;
    require(!options.verify || is_packed != 0 || runtime.world().size() > 1, ErrorKind::usage,
            "{}: only directories that moesaic convert made have checksums to verify; several "
            "ranks compare the bytes of a checkpoint",
            options.model);
  });
  if (!options.verify) return;
  runtime.world().max({&is_packed, 1});
  if (is_packed == 0) return compare(runtime);
  LongWork work(runtime.world(), "verifying");  // others wait for as long as it goes on
  agree_on_work(runtime.world(), work, [&] {
    if (runtime.is_first()) verify(runtime, *files.packed(), work);
  });
  if (!runtime.is_first()) return;
  runtime.log().once(LogLevel::info, "all {} checksums are right",
                     files.packed()->manifest().entries.size());
}

}  // namespace moesaic
