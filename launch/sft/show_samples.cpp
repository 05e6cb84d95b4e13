#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/output_file.h"
#include "launch/sft/sft_data.h"

namespace moesaic {
namespace {

/// What is written at a time.
constexpr std::size_t kWrittenBytes = std::size_t{1} << 20;

/// The text of a sample, what is trained between >> and <<.
std::string marked_text(const Tokenizer& tokenizer, const TrainSample& sample) {
  std::string text;
  const auto is_trained = [&](std::size_t i) { return sample.labels[i] != kNotTrained; };
  for (std::size_t at = 0; at < sample.tokens.size();) {
    std::size_t end = at;
    while (end < sample.tokens.size() && is_trained(end) == is_trained(at)) ++end;
    const std::string run = tokenizer.decode(sample.tokens.subspan(at, end - at), false);
    text += is_trained(at) ? ">>" + run + "<<" : run;
    at = end;
  }
  return text;
}

/// A sample as a line of the format `tokens`.
std::string line_of(const TrainSample& sample) {
  return fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", fmt::join(sample.tokens, ", "),
                     fmt::join(sample.labels, ", "));
}

}  // namespace

void show_samples(const Options& options, const Tokenizer& tokenizer, const SampleSet& samples) {
  for (std::int64_t i = 0; i < std::min(options.show_sample, samples.size()); ++i) {
    const TrainSample sample = samples[i];
    fmt::print("--- sample {}: {} tokens, {} trained\n{}\n", i + 1, sample.tokens.size(),
               sample.trained_tokens(), marked_text(tokenizer, sample));
  }
}

void write_samples(const std::string& path, const SampleSet& samples) {
  if (path == "-") {
    for (std::int64_t i = 0; i < samples.size(); ++i) fmt::print("{}", line_of(samples[i]));
    return;
  }
  ReplacingFile file(path);
  std::int64_t end_byte = 0;
  std::string lines;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    lines += line_of(samples[i]);
    if (lines.size() < kWrittenBytes && i + 1 < samples.size()) continue;
    file.file().write_at(end_byte, std::as_bytes(std::span(lines)));
    end_byte += std::ssize(lines);
    lines.clear();
  }
  file.publish();
}

}  // namespace moesaic
