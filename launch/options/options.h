#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "kernels/format.h"
#include "kernels/grouped_gemm.h"
#include "launch/options/exchange_options.h"
#include "launch/options/gpu_options.h"
#include "launch/options/option_values.h"
#include "launch/options/plan_options.h"
#include "launch/options/serve_options.h"
#include "launch/options/sft_options.h"
#include "launch/options/study_options.h"
#include "src/model/precision.h"

namespace moesaic {

enum class Verb {
  chat,
  generate,
  serve,
  score,
  sft,
  convert,
  tokenize,
  inspect,
  bench_model,
  bench_kernels,
  bench_layer,
  bench_exchange,
  bench_sft,
  doctor,
  plan,
  study_run,
  study_points,
  study_report,
  study_predict,
  study_export_extrap,
  study_export_smpi,
  study_point
};

/// Layout of an adapter that is written. automatic: that of the one that was read, else
/// transformers4.
enum class AdapterLayoutChoice { automatic, transformers4, transformers5 };

/// When colours are used; automatic: where they are seen.
enum class Colour { automatic, on, off };

/// Whether threads stay on cores of their own; automatic: where there are enough.
enum class Pinning { automatic, off };

/// Everything that can be set, with its default. Names, limits and help stand in
/// launch/options/option_table.cpp.
struct Options : SftOptions, ExchangeOptions, GpuOptions, PlanOptions, ServeOptions, StudyOptions {
  // Model.
  std::string model;
  Precision precision = Precision::bf16;
  std::optional<Layout> expert_format;  // nothing: as the files have it
  std::optional<Layout> dense_format;
  std::optional<Layout> head_format;
  Nvfp4Activations nvfp4_activations = Nvfp4Activations::bf16;
  ActivationScales activation_scales = ActivationScales::runtime;
  Int4Activations int4_activations = Int4Activations::bf16;
  Numerics numerics = Numerics::native;
  std::int64_t ctx_size = 0;
  bool mmap = false;
  bool verify = false;
  std::optional<std::string> lora;

  // Conversion.
  std::string output_dir;
  bool overwrite = false;
  std::optional<ByteCount> shard_size;  // nothing: 4 GiB
  bool merge = false;
  AdapterLayoutChoice adapter_layout = AdapterLayoutChoice::automatic;

  // Text.
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::vector<std::string> files;  // of score
  bool no_display_prompt = false;
  bool whole_file = false;
  bool strict = false;
  bool no_special = false;
  bool chat = false;
  std::optional<std::string> chat_template;
  std::optional<std::string> chat_template_kwargs;  // a JSON object

  // Conversation.
  std::optional<std::string> system_prompt;
  std::int64_t answer_tokens = -1;     // -1: until the context is full
  std::optional<std::string> history;  // nothing: default_history_file(); empty: none
  Colour colour = Colour::automatic;

  // Scoring.
  std::int64_t stride = 0;  // 0: half the context
  bool no_window = false;

  // Generation.
  std::int64_t predict = 128;
  double temp = 0.8;
  std::int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0;
  std::int64_t seed = 0;
  double repeat_penalty = 1;
  std::int64_t repeat_last_n = -1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::string> logit_bias;
  std::vector<std::string> stop;
  std::int64_t num_return = 1;
  std::int64_t logprobs = -1;
  bool ignore_eos = false;
  std::int64_t parallel = 8;

  // Benchmark.
  std::vector<std::int64_t> n_prompt = {512};
  std::vector<std::int64_t> n_gen = {128};
  std::vector<std::string> prompt_and_gen;  // "512,64"
  std::vector<std::int64_t> batch_sizes = {512};
  std::optional<std::string> bench_text;
  std::int64_t repetitions = 5;
  std::string shapes = "deepseek-v3,qwen3-30b,mixtral,granite";
  std::string layers = "qwen3-30b,granite,mixtral";
  std::string formats = "all";
  std::vector<std::int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048};
  std::vector<std::int64_t> keys = {2048, 8192, 32768};
  std::vector<std::int64_t> tokens = {1, 4, 16, 64, 256, 1024, 4096};
  RoutingChoice routing = RoutingChoice::both;
  std::vector<std::int64_t> thread_counts;  // none: what the benchmark takes to be best
  double seconds = 0.2;
  ByteCount footprint = {.bytes = std::int64_t{3} << 29, .text = "1.5G"};
  ProductOp op = ProductOp::forward;
  Rival rival = Rival::none;
  ResultForm output = ResultForm::md;

  // Machine.
  std::int64_t threads = 0;
  std::int64_t batch_size = 512;
  IsaChoice isa;
  std::optional<ByteCount> memory_limit;  // nothing: what system and cgroup leave
  Pinning pin = Pinning::automatic;
  bool print_binding = false;

  // Ranks.
  std::int64_t expert_replicas = 1;
  Transport transport = Transport::automatic;
  std::int64_t timeout = 300;
  bool check_comm = false;
  std::int64_t ranks_per_node = 0;

  // Program.
  bool json = false;
  std::optional<std::string> out;
  bool unordered = false;
  std::optional<TimeSpan> max_time;  // nothing: until all is done
  std::optional<std::string> logits_out;
  std::optional<std::string> logprobs_out;
  std::string config;
  LogLevel log_level = LogLevel::info;
  bool show_config = false;
  bool help = false;
  bool version = false;
};

/// Where a value came from, weakest first.
enum class OptionSource { preset, file, environment, command_line };

/// A command line, understood.
struct Command {
  std::optional<Verb> verb;  // absent for `moesaic --help` and `moesaic --version`
  Options options;
  std::vector<OptionSource> sources;  // one a row of the option table
  std::vector<std::string> notes;     // things ignored that the user may have meant
};

/// Variables by name.
using Environment = std::map<std::string, std::string>;

/// Resolves `arguments` (without the program's name), MOESAIC_* variables and the file that
/// --config names: a flag, or a `key=value` word after the verb, beats the environment, which beats
/// the file, which beats the default. Throws Error{usage} that names flag and value, and the
/// nearest known name; Error{file} if the config file cannot be read.
[[nodiscard]] Command parse_command(std::span<const std::string> arguments,
                                    const Environment& environment);

/// Where the value of an option of the command's verb came from.
[[nodiscard]] OptionSource source_of(const Command& command, std::string_view option);
void set_source(Command& command, std::string_view option, OptionSource source);

/// The file that ends the command early when somebody makes it; empty if there is none.
[[nodiscard]] std::string stop_file(const Command& command);

/// The variables of this process that start with MOESAIC_.
[[nodiscard]] Environment moesaic_environment();

}  // namespace moesaic
