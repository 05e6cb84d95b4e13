#include "src/train/sample_set.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"

namespace moesaic {

std::int64_t TrainSample::trained_tokens() const {
  if (labels.empty()) return 0;
  return std::ranges::count_if(labels.subspan(1), [](auto label) { return label != kNotTrained; });
}

void SampleSet::add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  begins_.push_back(std::ssize(tokens_));
}

TrainSample SampleSet::operator[](std::int64_t index) const {
  const auto begin = static_cast<std::size_t>(begins_[static_cast<std::size_t>(index)]);
  const auto count = static_cast<std::size_t>(length(index));
  return {std::span(tokens_).subspan(begin, count), std::span(labels_).subspan(begin, count)};
}

std::int64_t SampleSet::longest() const {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < size(); ++i) longest = std::max(longest, length(i));
  return longest;
}

std::int64_t SampleSet::trained_tokens() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < size(); ++i) count += (*this)[i].trained_tokens();
  return count;
}

std::uint64_t SampleSet::fingerprint() const {
  const std::uint64_t parts[] = {checksum(std::as_bytes(std::span(tokens_))),
                                 checksum(std::as_bytes(std::span(labels_))),
                                 checksum(std::as_bytes(std::span(begins_)))};
  return checksum(std::as_bytes(std::span(parts)));
}

SampleSet::Parts SampleSet::take() && {
  return {std::move(tokens_), std::move(labels_), std::move(begins_)};
}

SampleSet SampleSet::of(Parts parts) {
  SampleSet set;
  set.tokens_ = std::move(parts.tokens);
  set.labels_ = std::move(parts.labels);
  set.begins_ = std::move(parts.begins);
  return set;
}

}  // namespace moesaic
