#include "launch/verbs/convert_adapter.h"

#include <fmt/core.h>

#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "launch/job/adapter_layout.h"
#include "launch/job/adapter_text.h"
#include "launch/job/agreement.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/packed_writer.h"
#include "src/lora/adapter_writer.h"
#include "src/model/merged_checkpoint.h"

namespace moesaic {
namespace {

void check_options(const Options& options, const OpenModel& model) {
  const bool has_layout = options.adapter_layout != AdapterLayoutChoice::automatic;
  require(options.merge != has_layout, ErrorKind::usage,
          "convert --lora to what? Either --merge writes a checkpoint with the adapter in it, or "
          "--adapter-layout the adapter in a layout");
  require(
      !options.expert_format && !options.dense_format && !options.head_format, ErrorKind::usage,
      "formats of weights do not go with --lora: --merge writes a checkpoint in bf16, which can "
      "be converted then");
  (void)choose_adapter_layout(options, model.config, &*model.adapter);  // throws if there is none
  require(!options.merge || model.files.checkpoint() != nullptr, ErrorKind::usage,
          "{}: was made by moesaic convert; merge into the checkpoint that it was made from",
          model.files.directory());
}

/// What is there then. On the first rank alone.
AdapterFiles write_layout(const Options& options, const OpenModel& model, LongWork& work) {
  const AdapterSet set = read_whole(*model.adapter);
  const std::vector<AdapterSite> sites = adapter_sites(model.files.names(model.config));
  SavedAdapter saved{model.adapter->description(), model.adapter->specs(), sites};
  saved.description.layout = choose_adapter_layout(options, model.config, &*model.adapter);
  PackedOutput output(options.output_dir, options.overwrite);
  save_adapter(part_directory(options.output_dir), saved, set,
               [&](std::int64_t done, std::int64_t total) { work.advance(done, total); });
  output.publish();
  return AdapterFiles::open(options.output_dir, sites);
}

/// Shards are shared between the ranks, a shard of each at a time.
void write_shards(const Runtime& runtime, const MergedCheckpoint& merged) {
  Communicator& world = runtime.world();
  Progress progress("merging", !runtime.is_first() || !runtime.log().enabled(LogLevel::info));
  const std::string directory = part_directory(runtime.options().output_dir);
  for (std::int64_t first = 0; first < merged.num_shards(); first += world.size()) {
    LongWork work(world, "merging", waiting_notice(runtime.log(), "merging"));
    agree_on_work(world, work, [&] {
      const std::int64_t own = first + world.rank();
      if (own >= merged.num_shards()) return;
      const MergedCheckpoint::Watch watch = [&](std::int64_t done) {
        work.advance(done, merged.shard_bytes(own));
        progress.update(done, merged.shard_bytes(own));
        runtime.interruption().leave_if_wanted("while merging");
      };
      merged.write_shard(own, directory, *runtime.compute().pool, watch);
    });
  }
}

std::int64_t merge(const Runtime& runtime, const OpenModel& model) {
  Communicator& world = runtime.world();
  const Options& options = runtime.options();
  std::optional<AdapterSet> set;
  std::optional<MergedCheckpoint> merged;
  std::optional<PackedOutput> output;  // of the first rank
  agree(world, [&] {
    set = read_whole(*model.adapter);
    merged.emplace(*model.files.checkpoint(), model.files.names(model.config), *set);
  });
  agree(world, [&] {
    if (!runtime.is_first()) return;
    output.emplace(options.output_dir, options.overwrite);
    PackedManifest copies;
    output->copy_files(model.files.directory(), copies);
    merged->write_texts(part_directory(options.output_dir));
  });
  write_shards(runtime, *merged);
  agree(world, [&] {
    if (output) output->publish();
  });
  return merged->bytes();
}

}  // namespace

void convert_adapter(const Runtime& runtime, const OpenModel& model) {
  const Options& options = runtime.options();
  const auto start = std::chrono::steady_clock::now();
  agree(runtime.world(), [&] { check_options(options, model); });
  std::int64_t merged_bytes = 0;
  std::optional<AdapterFiles> written;
  if (options.merge) {
    merged_bytes = merge(runtime, model);
  } else {
    LongWork work(runtime.world(), "writing", waiting_notice(runtime.log(), "writing"));
    agree_on_work(runtime.world(), work, [&] {
      if (runtime.is_first()) written = write_layout(options, model, work);
    });
  }
  if (!runtime.is_first()) return;
  const AdapterFiles& adapter = written ? *written : *model.adapter;
  const std::int64_t bytes = written ? written->bytes() : merged_bytes;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (options.json) {
    fmt::print("{}\n", JsonWriter()
                           .field("directory", options.output_dir)
                           .raw_field("adapter", adapter_json(adapter))
                           .field("bytes", bytes)
                           .field("seconds", seconds.count())
                           .text());
    return;
  }
  fmt::print("{}: {}, {}: {}\n", options.output_dir, format_bytes(bytes),
             options.merge ? "merged with an adapter" : "an adapter",
             adapter_text(adapter.specs(), adapter.description().layout));
}

}  // namespace moesaic
