#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/train/sample_options.h"
#include "src/train/schedule.h"

namespace moesaic {

/// What a step of fine-tuning does with a loss or a gradient that is no number.
enum class OnNonfinite { stop, skip };

/// Whether layers are computed again for the backward pass instead of being kept.
enum class RecomputeChoice { automatic, never, always };

/// What `moesaic sft` takes besides the options of all verbs that run a model.
struct SftOptions {
  // Data.
  std::optional<std::string> data;
  std::optional<SampleFormat> data_format;  // nothing: that of the first line
  std::optional<std::string> eval_data;
  double eval_split = 0;
  TrainOn train_on = TrainOn::all;
  TooLong too_long = TooLong::error;
  bool no_shuffle = false;
  std::int64_t show_sample = 0;
  std::optional<std::string> samples_out;

  // Adapter.
  std::int64_t lora_rank = 8;
  double lora_alpha = 16;
  bool rslora = false;
  double lora_dropout = 0;
  std::string lora_targets = "attention,experts,shared,dense";

  // Training.
  double lr = 1e-4;
  RateSchedule schedule = RateSchedule::cosine;
  std::int64_t warmup_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0;
  double clip = 1;
  std::int64_t global_batch_size = 16;
  double epochs = 1;
  std::int64_t max_steps = 0;
  RecomputeChoice recompute = RecomputeChoice::automatic;
  std::int64_t eval_every = 0;
  std::int64_t save_every = 0;
  std::int64_t keep = 2;
  bool resume = false;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::optional<std::string> grad_out;

  // Of bench sft.
  std::int64_t step_tokens = 1024;
  std::int64_t sample_tokens = 512;
};

}  // namespace moesaic
