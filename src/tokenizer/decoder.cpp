#include "src/tokenizer/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "src/tokenizer/decode_stages.h"
#include "src/tokenizer/json_parts.h"

namespace moesaic {
namespace {

/// The end of the chain.
class CollectStage final : public DecodeStage {
 public:
  explicit CollectStage(std::string& text) : text_(text) {}
  void push(std::string_view part, bool /*ends_token*/) override { text_ += part; }
  void finish() override {}

 private:
  std::string& text_;
};

template <typename Stage, typename... Arguments>
auto stage_maker(Arguments... arguments) {
  return [=](DecodeStage& next) { return std::make_unique<Stage>(next, arguments...); };
}

std::int64_t count_of(const Json& number) {
  const std::int64_t count = number.as_int();
  require(count >= 0, ErrorKind::file, "{}: {} is not a count", number.where(), count);
  return count;
}

}  // namespace

Decoder::Decoder() {
  steps_.emplace_back(stage_maker<JoinStage>());
}

void Decoder::add(const Json& part, int depth) {
  check_sequence_depth(part, depth);
  const std::string type = part.at("type").as_string();
  if (type == "Sequence") {
    part.at("decoders").for_each([&](const std::string&, const Json& inner) {
      add(inner, depth + 1);
    });
  } else if (type == "ByteLevel") {
    steps_.emplace_back(stage_maker<ByteLevelStage>());
  } else if (type == "ByteFallback") {
    steps_.emplace_back(stage_maker<ByteFallbackStage>());
  } else if (type == "Fuse") {
    steps_.emplace_back(stage_maker<FuseStage>());
  } else if (type == "Metaspace") {
    steps_.emplace_back(stage_maker<MetaspaceStage>(metaspace_options(part)));
  } else if (type == "Replace") {
    count_growth(part);
    steps_.emplace_back(
        stage_maker<ReplaceStage>(pattern_of(part), part.at("content").as_string()));
  } else if (type == "Strip") {
    steps_.emplace_back(stage_maker<StripStage>(StripOptions{single_character(part.at("content")),
                                                             count_of(part.at("start")),
                                                             count_of(part.at("stop"))}));
  } else {
    unsupported_type(part, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip and Sequence");
  }
}

/// Replaces alone make tokens longer. A pattern may match between all bytes.
void Decoder::count_growth(const Json& replace) {
  constexpr std::size_t kMostTimes = std::size_t{1} << 16;
  const std::size_t content = replace.at("content").as_string_view().size();
  const auto literal = replace.at("pattern").find("String");
  const std::size_t replaced = literal ? literal->as_string_view().size() : 0;
  const std::size_t times = replaced == 0 ? content + 1 : (content + replaced - 1) / replaced;
  growth_ *= std::max<std::size_t>(times, 1);
  require(growth_ <= kMostTimes, ErrorKind::file,
          "{}: with those before it, it may make a token {} times as long", replace.where(),
          growth_);
}

Decoder::Stream Decoder::start() const {
  Stream stream;
  stream.stages_.push_back(std::make_unique<CollectStage>(*stream.text_));
  for (auto make = steps_.rbegin(); make != steps_.rend(); ++make) {
    stream.stages_.push_back((*make)(*stream.stages_.back()));
  }
  return stream;
}

void Decoder::Stream::push(std::string_view token, std::string& out) {
  stages_.back()->push(token, true);
  take(out);
}

void Decoder::Stream::finish(std::string& out) {
  stages_.back()->finish();
  take(out);
}

void Decoder::Stream::take(std::string& out) {
  out += *text_;
  text_->clear();
}

}  // namespace moesaic
