#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "launch/sft/sft_data.h"

namespace moesaic {
namespace {

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
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  for (std::int64_t i = 0; file && i < samples.size(); ++i) file << line_of(samples[i]);
  const int reason = file ? 0 : errno;  // closing a file that failed would change it
  file.close();
  require(!file.fail(), ErrorKind::resource, "cannot write {}: {}", path,
          std::strerror(reason != 0 ? reason : errno));
}

}  // namespace moesaic
