#pragma once

#include <cstdint>
#include <optional>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/train/sample_reader.h"

namespace moesaic {

/// The samples of a run, the same on all ranks.
struct SftData {
  SampleSet train;
  SampleSet held_out;  // perhaps none
  ReadReport train_report;
};

/// Reads --data and --eval-data on rank 0, holds --eval-split of the first out, and shares them.
/// Throws AgreedError on all ranks for what is wrong with them. Collective.
[[nodiscard]] SftData read_sft_data(const Runtime& runtime, const OpenModel& model);

/// What rank 0 has in `set` reaches all ranks. Collective.
void share_samples(Communicator& world, SampleSet& set);

/// --show-sample and --samples-out, on rank 0.
void show_samples(const Options& options, const Tokenizer& tokenizer, const SampleSet& samples);
void write_samples(const std::string& path, const SampleSet& samples);

}  // namespace moesaic
