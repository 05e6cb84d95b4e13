#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "launch/job/agreement.h"
#include "launch/job/memory_check.h"
#include "launch/job/model_checksum.h"
#include "launch/job/program_version.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/job/written_files.h"
#include "launch/results/result_table.h"
#include "launch/verbs/conversion_record.h"
#include "launch/verbs/convert_adapter.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/packed_manifest.h"
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
                              .input_scales = InputScales::own};
  source->plan = plan_weights(model.files, model.config, request, source->weights);
  return source;
}

/// Of --shard-size.
std::int64_t shard_bytes(const Options& options) {
  return options.shard_size ? options.shard_size->bytes : kShardBytes;
}

/// Whether the entry is this rank's share.
bool is_own(const Communicator& world, std::size_t entry) {
  return std::cmp_equal(entry % static_cast<std::size_t>(world.size()), world.rank());
}

/// Packs the weights of one shard that are this rank's share.
class ShardConversion {
 public:
  /// So many bytes of the rank's share are there already.
  ShardConversion(const Runtime& runtime, const Source& source, const ShardWriter& writer,
                  std::int64_t done)
      : runtime_(runtime),
        source_(source),
        writer_(writer),
        converters_(static_cast<std::size_t>(runtime.compute().pool->size()),
                    WeightConverter(writer)),
        done_(done) {}

  void run(std::int64_t shard, PackedManifest& manifest, Progress& progress, LongWork& work) {
    std::vector<std::size_t> own;
    std::int64_t own_bytes = 0;
    for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
      if (!is_own(runtime_.world(), i) || manifest.entries[i].shard != shard) continue;
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
  std::atomic<std::int64_t> done_;
};

/// What packing finds out about an entry. Travels between ranks as it stands.
struct Finding {
  std::int64_t checksum = 0;
  std::int64_t scale = 0;  // its bits
};

Finding finding(const PackedEntry& entry) {
  return {.checksum = std::bit_cast<std::int64_t>(entry.checksum),
          .scale = std::bit_cast<std::int32_t>(entry.scale)};
}

void take(PackedEntry& entry, const Finding& found) {
  entry.checksum = std::bit_cast<std::uint64_t>(found.checksum);
  entry.scale = std::bit_cast<float>(narrow<std::int32_t>(found.scale));
}

/// What ranks have found out about a shard's entries reaches all.
void share_findings(Communicator& world, PackedManifest& manifest, std::int64_t shard) {
  std::vector<std::size_t> entries;
  std::vector<std::int64_t> values;  // zero from all ranks but one
  for (std::size_t i = 0; i < manifest.entries.size(); ++i) {
    if (manifest.entries[i].shard != shard) continue;
    const Finding found = is_own(world, i) ? finding(manifest.entries[i]) : Finding{};
    entries.push_back(i);
    values.insert(values.end(), {found.checksum, found.scale});
  }
  world.sum(std::span<std::int64_t>(values));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    take(manifest.entries[entries[i]], {values[2 * i], values[2 * i + 1]});
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
  fmt::print("{}: {} weights, {} in {}, {:.1f} s ({} GB/s)\n", options.output_dir,
             manifest.entries.size(), format_bytes(bytes), counted(manifest.shards.size(), "shard"),
             seconds, short_number(rate));
}

/// A conversion of all ranks, which goes on where an earlier one has left off.
class Conversion {
 public:
  /// Collective, as all that follows.
  Conversion(Runtime& runtime, const OpenModel& model)
      : runtime_(runtime), world_(runtime.world()) {
    const Options& options = runtime.options();
    agree(world_, [&] {
      source_ = plan_all(model);
      manifest_ = describe_packed(source_->plan.weights, shard_bytes(options));
      manifest_.formats = {.expert = wanted_name(options.expert_format),
                           .dense = wanted_name(options.dense_format),
                           .head = wanted_name(options.head_format)};
    });
    agree(world_, [&] {
      if (runtime.is_first()) open_output(model);
    });
    share_whole();
    agree(world_, [&] { writer_.emplace(options.output_dir, manifest_); });
  }

  /// Converts what is not whole.
  void run() {
    tell_formats();
    Progress progress("converting",
                      !runtime_.is_first() || !runtime_.log().enabled(LogLevel::info));
    ShardConversion conversion(runtime_, *source_, *writer_, own_bytes_of_whole());
    // Shard by shard: no rank gets far ahead of another, and all learn early when the disk is full.
    for (; whole_ < num_shards(); ++whole_) {
      LongWork work(world_, "converting", waiting_notice(runtime_.log(), "converting"));
      agree_on_work(world_, work, [&] { conversion.run(whole_, manifest_, progress, work); });
      share_findings(world_, manifest_, whole_);
      agree(world_, [&] {
        if (!output_) return;
        record_->add();
        output_->keep(manifest_.shards[static_cast<std::size_t>(whole_)]);
      });
    }
    progress.update(manifest_.total_bytes(), manifest_.total_bytes());
  }
  void publish() {
    agree(world_, [&] {
      if (output_) output_->publish(manifest_);
    });
  }

  /// "2 of 7 shards are kept, from where the same command goes on"
  [[nodiscard]] std::string kept_text() const {
    if (whole_ == 0) return "nothing is kept: no shard is whole (--shard-size makes them smaller)";
    return fmt::format("{} of {} shards are kept in {}; the same command goes on", whole_,
                       num_shards(), part_directory(runtime_.options().output_dir));
  }
  [[nodiscard]] const PackedManifest& manifest() const noexcept { return manifest_; }

 private:
  [[nodiscard]] std::int64_t num_shards() const { return std::ssize(manifest_.shards); }

  /// On the first rank.
  void open_output(const OpenModel& model) {
    const Options& options = runtime_.options();
    const std::string& directory = model.files.directory();
    output_.emplace(options.output_dir, options.overwrite, PackedOutput::Found::kept);
    output_->copy_files(directory, manifest_);
    const RunIdentity identity{
        .inputs = checksum_text(checksum(manifest_text(manifest_))),
        .model = model_checksum(directory),
        .options = JsonWriter().field("program", program_version().text()).text()};
    record_.emplace(output_->record_path(), identity, manifest_);
    const auto whole =
        std::span(manifest_.shards).first(static_cast<std::size_t>(record_->whole()));
    const auto is_there = [&](const PackedFile& shard) { return output_->has_shard(shard); };
    if (!std::ranges::all_of(whole, is_there)) record_->clear();
    for (std::int64_t i = 0; i < record_->whole(); ++i) {
      output_->keep(manifest_.shards[static_cast<std::size_t>(i)]);
    }
    output_->make_shards(manifest_);
  }

  /// All ranks learn what the first knows of an earlier conversion.
  void share_whole() {
    if (record_) whole_ = record_->whole();
    world_.broadcast(std::as_writable_bytes(std::span(&whole_, 1)), 0);
    if (whole_ == 0) return;
    std::vector<Finding> found;
    for (const PackedEntry& entry : manifest_.entries) found.push_back(finding(entry));
    world_.broadcast(std::as_writable_bytes(std::span(found)), 0);
    for (std::size_t i = 0; i < found.size(); ++i) take(manifest_.entries[i], found[i]);
    runtime_.log().once(LogLevel::info, "{} of {} shards are there from an earlier conversion",
                        whole_, num_shards());
  }

  void tell_formats() const {
    const FormatSums sums = sum_formats(*source_, manifest_);
    runtime_.log().once(LogLevel::info, "weights: {}", weights_text(sums.experts, sums.others));
    for (const std::string& note : source_->plan.notes) {
      runtime_.log().once(LogLevel::debug, "{}", note);
    }
  }

  [[nodiscard]] std::int64_t own_bytes_of_whole() const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < manifest_.entries.size(); ++i) {
      const PackedEntry& entry = manifest_.entries[i];
      if (is_own(world_, i) && entry.shard < whole_) bytes += entry.bytes;
    }
    return bytes;
  }

  Runtime& runtime_;
  Communicator& world_;
  std::unique_ptr<Source> source_;
  PackedManifest manifest_;
  std::optional<PackedOutput> output_;      // of the first rank
  std::optional<ConversionRecord> record_;  // of the first rank
  std::optional<ShardWriter> writer_;
  std::int64_t whole_ = 0;  // shards
};

void check_options(const Options& options) {
  require(!options.output_dir.empty(), ErrorKind::usage,
          "convert to where? --output OUTDIR says so");
  require(
      options.lora || !(options.merge || options.adapter_layout != AdapterLayoutChoice::automatic),
      ErrorKind::usage, "--merge and --adapter-layout are for the adapter that --lora names");
  require(!options.lora || !options.shard_size, ErrorKind::usage,
          "--shard-size is for packed weights: with --lora shards are those of the checkpoint");
  require(shard_bytes(options) > 0, ErrorKind::usage,
          "--shard-size 0: a shard has at least one byte");
  const auto require_outside = [&](std::string_view option, const std::string& path) {
    require(!is_within(path, options.output_dir), ErrorKind::usage,
            "--output {}: --{} is there, and would be replaced", options.output_dir, option);
  };
  require_outside("model", options.model);
  if (options.lora) require_outside("lora", *options.lora);
}

}  // namespace

void run_convert(Runtime& runtime) {
  const Options& options = runtime.options();
  const auto start = std::chrono::steady_clock::now();
  agree(runtime.world(), [&] { check_options(options); });
  const OpenModel model = read_model(runtime);
  if (model.adapter) {
    return runtime.run_or_end_early("nothing is written", [&] { convert_adapter(runtime, model); });
  }
  Conversion conversion(runtime, model);
  try {
    conversion.run();
  } catch (const Interrupted&) {
    return runtime.end_early(conversion.kept_text());
  }
  conversion.publish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (runtime.is_first()) print_result(runtime, conversion.manifest(), seconds.count());
}

}  // namespace moesaic
