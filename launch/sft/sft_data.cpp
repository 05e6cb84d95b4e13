#include "launch/sft/sft_data.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/error.h"
#include "launch/input/prompts.h"
#include "launch/input/reading.h"
#include "launch/job/gather.h"
#include "src/tokenizer/tokenizer_config.h"
#include "src/train/sample_order.h"

namespace moesaic {
namespace {

bool needs_end_token(SampleFormat format) {
  return format == SampleFormat::completion || format == SampleFormat::text;
}

/// The token that ends a text: that of the tokenizer's files, else the model's first one, of those
/// that the tokenizer has.
std::int32_t end_token(const OpenModel& model, const Tokenizer& tokenizer) {
  const std::string& directory = model.files.directory();
  const std::optional<std::string> name =
      SpecialTokens::read(directory, read_tokenizer_config(directory)).find("eos_token");
  if (name) {
    if (const auto id = tokenizer.token_id(*name)) return *id;
  }
  for (const std::int64_t id : model.config.eos_token_ids) {
    const auto token = narrow<std::int32_t>(id);
    if (!tokenizer.token(token).empty()) return token;
  }
  const std::vector<std::int64_t>& ids = model.config.eos_token_ids;
  fail(ErrorKind::file,
       "{}: no end-of-sequence token, which texts and completions are to end with: eos_token of "
       "tokenizer_config.json is {}, and eos_token_id of config.json is {}; give one that "
       "tokenizer.json has, or lines of input_ids and labels",
       directory,
       name ? fmt::format("\"{}\", which tokenizer.json does not have", *name) : "missing",
       ids.empty() ? "missing"
                   : fmt::format("{}, which tokenizer.json does not have", fmt::join(ids, ", ")));
}

SampleTools make_tools(const Options& options, const OpenModel& model, SampleFormat format) {
  SampleTools tools;
  tools.vocab_size = model.config.vocab_size;
  tools.train_on = options.train_on;
  if (format == SampleFormat::tokens) return tools;
  tools.tokenizer = Tokenizer::from_directory(model.files.directory());
  if (needs_end_token(format)) tools.end_token = end_token(model, *tools.tokenizer);
  if (is_conversation(format)) {
    tools.chat_template =
        ChatTemplate::from_directory(model.files.directory(), options.chat_template);
  }
  return tools;
}

ReadSamples read_data_file(const Options& options, const OpenModel& model, const std::string& path,
                           const ReadProgress& reading) {
  const std::string name = input_name(path);
  const std::string text = read_utf8_file(path, [&] { reading(0, 1); });
  const SampleFile file(text, name);
  const SampleFormat format = options.data_format ? *options.data_format : file.detect_format();
  return file.read(make_tools(options, model, format),
                   {.format = format,
                    .context = context_limit(options, model.config),
                    .too_long = options.too_long,
                    .progress = reading});
}

SampleSet subset(const SampleSet& set, const std::vector<std::int64_t>& samples) {
  SampleSet some;
  for (const std::int64_t sample : samples) some.add(set[sample].tokens, set[sample].labels);
  return some;
}

/// Moves --eval-split of the training data over to the held-out data.
void split_held_out(const Options& options, SftData& data) {
  if (options.eval_split == 0) return;
  const std::int64_t count = options.eval_split < 1
                                 ? count_of_share(options.eval_split, data.train.size())
                                 : static_cast<std::int64_t>(options.eval_split);
  require(
      count >= 1 && count < data.train.size(), ErrorKind::usage,
      "--eval-split {}: {} of {} samples would be held out; at least one must be, and one must be "
      "left",
      options.eval_split, count, data.train.size());
  const HeldOut parts =
      hold_out(data.train.size(), count, static_cast<std::uint64_t>(options.seed));
  if (!is_training(options)) return;
  data.held_out = subset(data.train, parts.held_out);
  data.train = subset(data.train, parts.trained);
}

}  // namespace

void share_samples(Communicator& world, SampleSet& set) {
  SampleSet::Parts parts = std::move(set).take();
  broadcast_vector(world, parts.tokens);
  broadcast_vector(world, parts.labels);
  broadcast_vector(world, parts.begins);
  set = SampleSet::of(std::move(parts));
}

bool is_training(const Options& options) {
  return options.show_sample == 0 && !options.samples_out;
}

void check_data_options(const Options& options) {
  require(options.data.has_value(), ErrorKind::usage, "no data: --data FILE says which");
  require(options.data != "-" || options.eval_data != "-", ErrorKind::usage,
          "--data - and --eval-data -: only one of them can be the standard input");
  require(options.samples_out != "-" || options.show_sample == 0, ErrorKind::usage,
          "--samples-out - and --show-sample: only one of them can have the standard output");
  if (options.eval_split == 0) return;
  require(!options.eval_data.has_value(), ErrorKind::usage,
          "--eval-data and --eval-split exclude each other");
  require(options.eval_split < 1 || options.eval_split == std::floor(options.eval_split),
          ErrorKind::usage, "--eval-split {}: neither a share below 1 nor a whole number",
          options.eval_split);
}

std::string samples_text(const SampleSet& samples, const ReadReport& report) {
  std::string text = fmt::format("{}, {}, {} of them trained", counted(samples.size(), "sample"),
                                 counted(samples.tokens(), "token"), samples.trained_tokens());
  if (report.cut > 0) text += fmt::format("; {} cut", report.cut);
  if (report.dropped_long > 0) text += fmt::format("; {} too long", report.dropped_long);
  if (report.dropped_untrained > 0) {
    text += fmt::format("; {} without a trained token left out", report.dropped_untrained);
  }
  return text;
}

SftData read_sft_data(const Runtime& runtime, const OpenModel& model) {
  const Options& options = runtime.options();
  SftData data;
  read_texts(runtime, [&](const ReadProgress& reading) {
    ReadSamples read = read_data_file(options, model, *options.data, reading);
    data.train = std::move(read.samples);
    data.train_report = read.report;
    if (options.eval_data) {
      ReadSamples held_out = read_data_file(options, model, *options.eval_data, reading);
      data.held_out = std::move(held_out.samples);
      data.held_out_report = held_out.report;
    }
    split_held_out(options, data);
  });
  share_samples(runtime.world(), data.train);
  share_samples(runtime.world(), data.held_out);
  if (data.held_out.size() > 0) {
    runtime.log().once(LogLevel::info, "held out: {}",
                       samples_text(data.held_out, data.held_out_report));
  }
  return data;
}

}  // namespace moesaic
