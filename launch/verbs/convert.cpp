#include <fmt/core.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "launch/bench/result_table.h"
#include "launch/job/agreement.h"
#include "launch/job/memory_check.h"
#include "launch/job/session.h"
#include "launch/verbs/convert_adapter.h"
#include "launch/verbs/verbs.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/packed_writer.h"
#include "src/model/weight_converter.h"

namespace moesaic {
namespace {

/// All weights of the model, with nowhere to go in memory.
struct Source {
  ModelWeights weights;  // never loaded; the plan points into it
  WeightPlan plan;
};

std::unique_ptr<Source> plan_all(const OpenModel& model) {
  require(model.files.packed() == nullptr, ErrorKind::usage,
          "{}: was made by moesaic convert; convert the checkpoint that it was made from",
          model.files.directory());
  auto source = std::make_unique<Source>();
  source->weights.files = model.files;
  const WeightRequest request{.layouts = LayoutChoice(Precision::bf16, model.layouts),
                              .experts = {.first = 0, .count = model.config.num_experts}};
  source->plan = plan_weights(model.files, model.config, request, source->weights);
  return source;
}

/// Packs the weights of one shard that are this rank's share.
class ShardConversion {
 public:
  ShardConversion(const Runtime& runtime, const Source& source, const ShardWriter& writer)
      : runtime_(runtime),
        source_(source),
        writer_(writer),
        converters_(static_cast<std::size_t>(runtime.compute().pool->size()),
                    WeightConverter(writer)) {}

  void run(std::int64_t shard, PackedManifest& manifest, Progress& progress, LongWork& work) {
    std::vector<std::size_t> own;
    std::int64_t own_bytes = 0;
    for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
      const bool is_own = std::cmp_equal(i % static_cast<std::size_t>(runtime_.world().size()),
                                         runtime_.world().rank());
      if (!is_own || manifest.entries[i].shard != shard) continue;
      own.push_back(i);
      own_bytes += manifest.entries[i].bytes;
    }
    const std::int64_t before = done_;
    runtime_.compute().pool->parallel_for(std::ssize(own), [&](std::int64_t task, int worker) {
      const std::size_t index = own[static_cast<std::size_t>(task)];
      PackedEntry& entry = manifest.entries[index];
      reading(source_.weights.files, [&] {
        converters_[static_cast<std::size_t>(worker)].convert(source_.plan.weights[index], entry);
      });
      done_ += entry.bytes;
      if (worker != 0) return;
      runtime_.interruption().leave_if_wanted("while converting");
      work.advance(done_ - before, own_bytes);
      progress.update(done_, manifest.total_bytes() / runtime_.world().size());
    });
    if (!own.empty()) writer_.sync(shard);
  }

 private:
  const Runtime& runtime_;
  const Source& source_;
  const ShardWriter& writer_;
  std::vector<WeightConverter> converters_;
  std::atomic<std::int64_t> done_ = 0;
};

/// What the rank that packed an entry found out reaches all.
void share_results(Communicator& world, PackedManifest& manifest) {
  std::vector<std::int64_t> values;  // zero from all ranks but one
  for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
    const PackedEntry& entry = manifest.entries[i];
    const bool is_own = std::cmp_equal(i % static_cast<std::size_t>(world.size()), world.rank());
    values.push_back(is_own ? std::bit_cast<std::int64_t>(entry.checksum) : 0);
    values.push_back(is_own ? std::bit_cast<std::int32_t>(entry.scale) : 0);
  }
  world.sum(std::span<std::int64_t>(values));
  for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
    manifest.entries[i].checksum = std::bit_cast<std::uint64_t>(values[2 * i]);
    manifest.entries[i].scale = std::bit_cast<float>(narrow<std::int32_t>(values[2 * i + 1]));
  }
}

struct FormatSums {
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};
};

FormatSums sum_formats(const Source& source, const PackedManifest& manifest) {
  FormatSums sums;
  for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
    const PackedEntry& entry = manifest.entries[i];
    if (entry.plain) continue;
    auto& formats = source.plan.weights[i].role == WeightRole::expert ? sums.experts : sums.others;
    formats[static_cast<std::size_t>(entry.layout.format)] += entry.bytes;
  }
  return sums;
}

void print_result(const Runtime& runtime, const PackedManifest& manifest, double seconds) {
  const Options& options = runtime.options();
  const auto bytes = manifest.total_bytes();
  const double rate = static_cast<double>(bytes) / seconds / 1e9;
  if (options.json) {
    fmt::print("{}\n", JsonWriter()
                           .field("directory", options.output_dir)
                           .field("expert_format", manifest.formats.expert)
                           .field("dense_format", manifest.formats.dense)
                           .field("head_format", manifest.formats.head)
                           .field("weights", std::ssize(manifest.entries))
                           .field("shards", std::ssize(manifest.shards))
                           .field("bytes", bytes)
                           .field("seconds", seconds)
                           .field("gigabytes_per_second", rate)
                           .text());
    return;
  }
  fmt::print("{}: {} weights, {} in {} {}, {:.1f} s ({} GB/s)\n", options.output_dir,
             manifest.entries.size(), format_bytes(bytes), manifest.shards.size(),
             manifest.shards.size() == 1 ? "shard" : "shards", seconds, short_number(rate));
}

}  // namespace

void run_convert(Runtime& runtime) {
  const Options& options = runtime.options();
  Communicator& world = runtime.world();
  const auto start = std::chrono::steady_clock::now();
  agree(world, [&] {
    require(!options.output_dir.empty(), ErrorKind::usage,
            "convert to where? --output OUTDIR says so");
    require(options.lora ||
                !(options.merge || options.adapter_layout != AdapterLayoutChoice::automatic),
            ErrorKind::usage, "--merge and --adapter-layout are for the adapter that --lora names");
  });
  const OpenModel model = read_model(runtime);
  if (model.adapter) return convert_adapter(runtime, model);
  std::unique_ptr<Source> source;
  std::optional<PackedOutput> output;  // of the first rank
  std::optional<ShardWriter> writer;
  PackedManifest manifest;
  agree(world, [&] {
    source = plan_all(model);
    manifest = describe_packed(source->plan.weights);
    manifest.formats = {.expert = wanted_name(options.expert_format),
                        .dense = wanted_name(options.dense_format),
                        .head = wanted_name(options.head_format)};
  });
  agree(world, [&] {
    if (!runtime.is_first()) return;
    output.emplace(options.output_dir, options.overwrite);
    output->copy_files(model.files.directory(), manifest);
    output->make_shards(manifest);
  });
  agree(world, [&] { writer.emplace(options.output_dir, manifest); });
  const FormatSums sums = sum_formats(*source, manifest);
  runtime.log().once(LogLevel::info, "weights: {}", weights_text(sums.experts, sums.others));
  for (const std::string& note : source->plan.notes) {
    runtime.log().once(LogLevel::debug, "{}", note);
  }
  runtime.run_or_end_early("nothing is kept", [&] {
    Progress progress("converting", !runtime.is_first() || !runtime.log().enabled(LogLevel::info));
    ShardConversion conversion(runtime, *source, *writer);
    // Shard by shard: no rank gets far ahead of another, and all learn early when the disk is full.
    for (std::int64_t shard = 0; shard < std::ssize(manifest.shards); ++shard) {
      LongWork work(world, "converting", waiting_notice(runtime.log(), "converting"));
      agree_on_work(world, work, [&] { conversion.run(shard, manifest, progress, work); });
    }
    progress.update(manifest.total_bytes(), manifest.total_bytes());
  });
  if (runtime.ends_early()) return;
  share_results(world, manifest);
  agree(world, [&] {
    if (output) output->publish(manifest);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (runtime.is_first()) print_result(runtime, manifest, seconds.count());
}

}  // namespace moesaic
