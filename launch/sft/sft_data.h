#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/train/sample_reader.h"

namespace moesaic {

/// The samples of a run, the same on all ranks.
struct SftData {
  SampleSet train;
  SampleSet held_out;          // perhaps none
  ReadReport train_report;     // of rank 0, for all of --data
  ReadReport held_out_report;  // of rank 0, for --eval-data
};

/// What --eval-split holds out, in OUTDIR: lines of the format `tokens`.
inline constexpr std::string_view kHeldOutFile = "held_out.jsonl";

/// Whether there is a run: samples are not just shown or written.
[[nodiscard]] bool is_training(const Options& options);

/// Throws Error{usage} for options of data that do not go together, before anything is read.
void check_data_options(const Options& options);

/// "12 samples, 345 tokens, 67 of them trained; 1 too long", and what else became of lines.
[[nodiscard]] std::string samples_text(const SampleSet& samples, const ReadReport& report);

/// Reads --data and --eval-data on rank 0, holds --eval-split of the first out if there is to be
/// a run, shares them, and tells what is held out. Throws AgreedError on all ranks for what is
/// wrong with them. Collective.
[[nodiscard]] SftData read_sft_data(const Runtime& runtime, const OpenModel& model);

/// What rank 0 has in `set` reaches all ranks. Collective.
void share_samples(Communicator& world, SampleSet& set);

/// --show-sample and --samples-out, on rank 0.
void show_samples(const Options& options, const Tokenizer& tokenizer, const SampleSet& samples);
/// `path` "-" is the standard output; a file is replaced when all of it is on the disk. Throws
/// Error{resource} naming a file that cannot be written, and why.
void write_samples(const std::string& path, const SampleSet& samples);

}  // namespace moesaic
