#include "launch/sft/sft_store.h"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/long_work.h"
#include "launch/job/agreement.h"
#include "launch/sft/disk_demand.h"
#include "launch/sft/sft_output.h"
#include "src/lora/adapter_writer.h"

namespace moesaic {

SftStore::SftStore(const Runtime& runtime, const OpenModel& model, const SftData& data,
                   SftSetup& setup)
    : runtime_(runtime),
      setup_(setup),
      digest_(find_digest(runtime, model, data, setup.specs(), setup.dropout())),
      checkpoints_(runtime.options().output_dir, setup.saved_adapter()),
      keeps_best_(data.held_out.size() > 0 && runtime.options().eval_every > 0) {}

/// The adapter of --lora is gone: if it is that of the run, its checkpoint knows what it was. On
/// rank 0.
void SftStore::recall_adapter(const TrainProgress& progress) {
  constexpr std::array<std::string_view, 1> kName = {"lora"};
  const bool is_of_run =
      !progress.adapter.empty() && changed_options(runtime_.command(), kName) == "";
  if (is_of_run) digest_.adapter = progress.adapter;
}

/// On rank 0.
void SftStore::require_own(const TrainProgress& progress) const {
  require(progress.digest == digest_.text(), ErrorKind::usage,
          "{}: {}; --overwrite in place of --resume begins anew, --lora {} with another --output "
          "goes on from its adapter",
          checkpoints_.path(progress.steps), other_run(runtime_.command(), progress, digest_),
          checkpoints_.path(progress.steps));
  require(progress.steps <= setup_.total_steps(), ErrorKind::usage,
          "{}: has more steps than the {} of the run: --max-steps or --epochs says how many",
          checkpoints_.path(progress.steps), setup_.total_steps());
}

std::int64_t SftStore::load_newest_checkpoint() {
  std::optional<TrainProgress> newest;
  const std::string what = "reading checkpoints";
  LongWork work(runtime_.world(), what, waiting_notice(runtime_.log(), what));
  agree_on_work(runtime_.world(), work, [&] {
    if (!runtime_.is_first()) return;
    newest = checkpoints_.find_newest(
        [&](std::int64_t done, std::int64_t total) { work.advance(done, total); });
    if (!newest) return;
    if (!digest_.adapter) recall_adapter(*newest);
    require_own(*newest);
  });
  for (const std::string& damage : checkpoints_.damaged()) {
    runtime_.log().once(LogLevel::warning,
                        "{}; going on from {} instead: what comes after it is done again, and the "
                        "damaged checkpoint goes when the next one is there",
                        damage, checkpoints_.path(newest->steps));
  }
  std::array<std::int64_t, 2> counts = {newest ? newest->steps : -1, newest ? newest->updates : 0};
  runtime_.world().max(counts);
  const auto [steps, updates] = counts;
  if (steps < 0) return steps;
  setup_.trainer().set_updates(updates);
  checkpoints_.load(steps, setup_.exchange(), train_state());
  setup_.adapters().pack(*runtime_.compute().pool);
  return steps;
}

void SftStore::save_checkpoint(std::int64_t steps, std::int64_t also) {
  checkpoints_.save({.steps = steps,
                     .updates = setup_.trainer().updates(),
                     .digest = digest_.text(),
                     .model = digest_.model,
                     .data = digest_.data,
                     .adapter = digest_.adapter.value_or("")},
                    train_state(), setup_.exchange(), {runtime_.options().keep, also});
}

TrainCheckpoints::State SftStore::train_state() {
  return {.masters = setup_.adapters().masters(), .moments = setup_.trainer().moments()};
}

void SftStore::save_adapter(const std::string& directory) const {
  moesaic::save_adapter(directory, setup_.saved_adapter(), setup_.adapters().masters(),
                        setup_.exchange());
}

DiskDemand SftStore::disk_demand(std::int64_t done, std::int64_t there) const {
  const Options& options = runtime_.options();
  return {.steps_done = done,
          .total_steps = setup_.total_steps(),
          .save_every = options.save_every,
          .keep = options.keep + (keeps_best_ ? 1 : 0),
          .there = there,
          .checkpoint_bytes = checkpoints_.bytes(),
          .adapter_bytes = adapter_file_bytes(setup_.saved_adapter()),
          .gradients = options.grad_out};
}

void SftStore::require_room(std::int64_t done) const {
  moesaic::require_room(runtime_.options().output_dir,
                        disk_demand(done, checkpoints_.count_full()));
}

std::int64_t SftStore::demanded_bytes() const {
  return moesaic::demanded_bytes(disk_demand(0, 0));
}

void SftStore::write_gradients(const std::string& path) const {
  const std::span<const std::int64_t> sums = setup_.trainer().gradients().sums();
  std::vector<float> values;
  values.reserve(sums.size());
  for (const std::int64_t sum : sums) {
    values.push_back(
        static_cast<float>(static_cast<double>(sum) * setup_.trainer().gradient_scale()));
  }
  std::optional<AdapterWriter> writer;
  if (runtime_.is_first()) writer.emplace(path, setup_.specs(), setup_.description());
  setup_.exchange().collect(values, [&](std::int64_t index, std::span<const float> a,
                                        std::span<const float> b) { writer->add(index, a, b); });
  if (writer) writer->finish();
}

}  // namespace moesaic
