#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
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

/// A file of samples, without a byte order mark: a JSON object a line, or one JSON list of objects.
/// Lines without text are skipped; only \n ends a line.
class SampleFile {
 public:
  /// `text` must outlive this; `file` stands in messages. Throws Error{file}, as all that follows,
  /// naming file, line and what is wrong.
  SampleFile(std::string_view text, std::string file);

  /// That of the first line. Throws if there is none.
  [[nodiscard]] SampleFormat detect_format() const;
  /// Throws also if no sample is left.
  [[nodiscard]] ReadSamples read(const SampleTools& tools, const ReadOptions& options) const;

 private:
  /// Hears of an object and of how much of the file is read with it; whether that is enough.
  using Call = std::function<bool(const Json& object, std::int64_t done)>;
  void for_each_object(const Call& is_enough) const;

  std::string_view text_;
  std::string file_;
  std::optional<Json> list_;
};

}  // namespace moesaic
