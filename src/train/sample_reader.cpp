#include "src/train/sample_reader.h"

#include <utility>

#include "base/error.h"
#include "base/text_lines.h"

namespace moesaic {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_list(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first != std::string_view::npos && text[first] == '[';
}

class Reader {
 public:
  Reader(const SampleTools& tools, const ReadOptions& options) : tools_(tools), options_(options) {}

  void add(const Json& line) {
    ++read_.report.samples;
    MadeSample sample = make_sample(line, options_.format, tools_);
    if (!fit(sample, line)) return;
    const TrainSample view{sample.tokens, sample.labels};
    if (view.trained_tokens() == 0) {
      ++read_.report.dropped_untrained;
      return;
    }
    read_.samples.add(sample.tokens, sample.labels);
  }

  [[nodiscard]] ReadSamples take() && { return std::move(read_); }

 private:
  /// False if the sample is to be left out.
  bool fit(MadeSample& sample, const Json& line) {
    const auto length = static_cast<std::int64_t>(sample.tokens.size());
    if (length <= options_.context) return true;
    require(options_.too_long != TooLong::error, ErrorKind::file,
            "{}: {} tokens exceed the context of {}; --ctx-size may set more, --too-long cut or "
            "drop leaves some out",
            line.where(), length, options_.context);
    if (options_.too_long == TooLong::drop) {
      ++read_.report.dropped_long;
      return false;
    }
    ++read_.report.cut;
    sample.tokens.resize(static_cast<std::size_t>(options_.context));
    sample.labels.resize(sample.tokens.size());
    return true;
  }

  const SampleTools& tools_;
  const ReadOptions& options_;
  ReadSamples read_;
};

}  // namespace

SampleFile::SampleFile(std::string_view text, std::string file)
    : text_(text), file_(std::move(file)) {
  if (is_list(text)) list_ = Json::parse(text, file_);
}

void SampleFile::for_each_object(const Call& is_enough) const {
  const std::int64_t bytes = std::ssize(text_);
  if (list_) {
    for (std::int64_t i = 0; i < list_->size(); ++i) {
      if (is_enough(list_->at(i), bytes * (i + 1) / list_->size())) return;
    }
    return;
  }
  TextLines lines(text_);
  while (const auto line = lines.next_filled()) {
    if (is_enough(Json::parse(line->text, line->where(file_)), line->end)) return;
  }
}

ReadSamples SampleFile::read(const SampleTools& tools, const ReadOptions& options) const {
  Reader reader(tools, options);
  for_each_object([&](const Json& object, std::int64_t done) {
    reader.add(object);
    if (options.progress) options.progress(done, std::ssize(text_));
    return false;
  });
  ReadSamples read = std::move(reader).take();
  require(read.report.samples > 0, ErrorKind::file, "{} holds no sample: it is empty", file_);
  require(read.samples.size() > 0, ErrorKind::file,
          "{}: no sample is left of {}: {} without a trained token, {} too long, {} cut", file_,
          read.report.samples, read.report.dropped_untrained, read.report.dropped_long,
          read.report.cut);
  return read;
}

SampleFormat SampleFile::detect_format() const {
  std::optional<SampleFormat> format;
  for_each_object([&](const Json& object, std::int64_t) {
    format = detect_sample_format(object);
    return true;
  });
  require(format.has_value(), ErrorKind::file, "{} holds no sample: it is empty", file_);
  return *format;
}

}  // namespace moesaic
