#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/train/sample_maker.h"
#include "src/train/sample_set.h"

namespace moesaic {

struct ReadOptions {
  SampleFormat format = SampleFormat::text;
  std::int64_t context = 0;  ///< most tokens of a sample
  TooLong too_long = TooLong::error;
  /// Hears after each sample how many bytes of all are read.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

/// What became of the lines of a file.
struct ReadReport {
  std::int64_t samples = 0;
  std::int64_t cut = 0;
  std::int64_t dropped_long = 0;
  std::int64_t dropped_untrained = 0;  ///< without a token that is trained
};

struct ReadSamples {
  SampleSet samples;
  ReadReport report;
};

/// The samples of a file, without a byte order mark: a JSON object a line, or one JSON list of
/// objects. Lines without text are skipped; only \n ends a line. `file` stands in messages. Throws
/// Error{file} naming file, line and what is wrong, also if no sample is left.
[[nodiscard]] ReadSamples read_samples(std::string_view text, const std::string& file,
                                       const SampleTools& tools, const ReadOptions& options);

/// Which format the file has: that of its first line.
[[nodiscard]] SampleFormat detect_file_format(std::string_view text, const std::string& file);

}  // namespace moesaic
