#include "src/train/sample_reader.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_list(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first != std::string_view::npos && text[first] == '[';
}

/// Calls for every object of the file, with how much of it is read then, until `call` says that it
/// is enough.
template <typename Call>
void for_each_line(std::string_view text, const std::string& file, Call&& call) {
  const std::int64_t bytes = std::ssize(text);
  if (is_list(text)) {
    const Json list = Json::parse(text, file);
    for (std::int64_t i = 0; i < list.size(); ++i) {
      if (!call(list.at(i), bytes * (i + 1) / list.size())) return;
    }
    return;
  }
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    const Json object = Json::parse(line, fmt::format("{} line {}", file, number));
    if (!call(object, bytes - std::ssize(text))) return;
  }
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

ReadSamples read_samples(std::string_view text, const std::string& file, const SampleTools& tools,
                         const ReadOptions& options) {
  Reader reader(tools, options);
  for_each_line(text, file, [&](const Json& line, std::int64_t done) {
    reader.add(line);
    if (options.progress) options.progress(done, std::ssize(text));
    return true;
  });
  ReadSamples read = std::move(reader).take();
  require(read.report.samples > 0, ErrorKind::file, "{} holds no sample: it is empty", file);
  require(read.samples.size() > 0, ErrorKind::file,
          "{}: none of its {} samples is left: {} have no trained token, {} are too long", file,
          read.report.samples, read.report.dropped_untrained, read.report.dropped_long);
  return read;
}

SampleFormat detect_file_format(std::string_view text, const std::string& file) {
  std::optional<SampleFormat> format;
  for_each_line(text, file, [&](const Json& line, std::int64_t) {
    format = detect_sample_format(line);
    return false;
  });
  require(format.has_value(), ErrorKind::file, "{} holds no sample: it is empty", file);
  return *format;
}

}  // namespace moesaic
