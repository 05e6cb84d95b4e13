#include "launch/job/same_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/progress.h"
#include "comm/long_work.h"
#include "comm/wait.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

/// Of a file: at its start, at its end, and evenly between.
constexpr std::int64_t kSamples = 16;
constexpr std::int64_t kSampleBytes = 4096;
/// Of all bytes, so many are one checksum.
constexpr std::int64_t kPartBytes = std::int64_t{64} << 20;

/// Bytes of a weight, as it is stored.
struct Part {
  std::string_view weight;
  std::string_view file;  // path
  std::int64_t first = 0;
  std::span<const std::byte> bytes;
};

/// All weights, in the order of their places in the files; the same on all ranks.
std::vector<Part> stored_weights(const ModelFiles& files) {
  std::vector<Part> weights;
  if (const Checkpoint* checkpoint = files.checkpoint()) {
    for (const TensorView* tensor : checkpoint->tensors()) {
      weights.push_back({.weight = tensor->name, .file = tensor->file, .bytes = tensor->bytes});
    }
  } else {
    const PackedManifest& manifest = files.packed()->manifest();
    for (const PackedEntry& entry : manifest.entries) {
      weights.push_back({.weight = entry.name,
                         .file = manifest.shards[static_cast<std::size_t>(entry.shard)].name,
                         .bytes = files.packed()->bytes(entry)});
    }
  }
  std::erase_if(weights, [](const Part& weight) { return weight.bytes.empty(); });
  std::ranges::sort(weights, [](const Part& a, const Part& b) {
    return std::tuple(a.file, a.bytes.data()) < std::tuple(b.file, b.bytes.data());
  });
  return weights;
}

Part part_of(const Part& weight, std::int64_t first, std::int64_t bytes) {
  const std::int64_t count = std::min(bytes, std::ssize(weight.bytes) - first);
  return {.weight = weight.weight,
          .file = weight.file,
          .first = first,
          .bytes = weight.bytes.subspan(static_cast<std::size_t>(first),
                                        static_cast<std::size_t>(count))};
}

/// Adds samples of weights that are all of one file; one that reaches beyond a weight has parts.
void sample_file(std::span<const Part> weights, std::vector<Part>& samples) {
  std::int64_t total = 0;
  for (const Part& weight : weights) total += std::ssize(weight.bytes);
  const std::int64_t last = std::max<std::int64_t>(0, total - kSampleBytes);
  std::int64_t start = 0;  // of the weight
  auto weight = weights.begin();
  for (std::int64_t i = 0; i < kSamples; ++i) {
    std::int64_t at = last / (kSamples - 1) * i + last % (kSamples - 1) * i / (kSamples - 1);
    const std::int64_t end = std::min(total, at + kSampleBytes);
    while (at >= start + std::ssize(weight->bytes)) start += std::ssize((weight++)->bytes);
    auto next = weight;
    for (std::int64_t next_start = start; at < end; ++next) {
      samples.push_back(part_of(*next, at - next_start, end - at));
      next_start += std::ssize(next->bytes);
      at = next_start;
    }
  }
}

std::vector<Part> choose_samples(const std::vector<Part>& weights) {
  std::vector<Part> samples;
  for (auto first = weights.begin(); first != weights.end();) {
    const auto end = std::find_if(first, weights.end(),
                                  [&](const Part& weight) { return weight.file != first->file; });
    sample_file({first, end}, samples);
    first = end;
  }
  for (const Part& sample : samples) prefetch(sample.bytes);
  return samples;
}

std::vector<Part> cut_all(const std::vector<Part>& weights) {
  std::vector<Part> parts;
  for (const Part& weight : weights) {
    for (std::int64_t first = 0; first < std::ssize(weight.bytes); first += kPartBytes) {
      parts.push_back(part_of(weight, first, kPartBytes));
    }
  }
  return parts;
}

/// A checksum of each. Collective.
std::vector<std::uint64_t> checksums_of(const Runtime& runtime, const ModelFiles& files,
                                        const std::vector<Part>& parts) {
  std::int64_t total = 0;
  for (const Part& part : parts) total += std::ssize(part.bytes);
  Progress progress("verifying", !runtime.is_first() || !runtime.log().enabled(LogLevel::info));
  std::vector<std::uint64_t> sums(parts.size());
  std::atomic<std::int64_t> done = 0;
  LongWork work(runtime.world(), "verifying", waiting_notice(runtime.log(), "verifying"));
  agree_on_work(runtime.world(), work, [&] {
    runtime.compute().pool->parallel_for(std::ssize(parts), [&](std::int64_t i, int worker) {
      const auto index = static_cast<std::size_t>(i);
      sums[index] = reading(files, [&] { return checksum(parts[index].bytes); });
      release(parts[index].bytes);
      done += std::ssize(parts[index].bytes);
      if (worker != 0) return;
      work.advance(done, total);
      progress.update(done, total);
    });
  });
  return sums;
}

/// Throws on all ranks, which have found out that they differ. Collective.
[[noreturn]] void tell_difference(const Runtime& runtime, const std::vector<Part>& parts,
                                  const std::vector<std::uint64_t>& own) {
  std::vector<std::uint64_t> first_rank = own;
  broadcast_vector(runtime.world(), first_rank);
  const auto place = std::ranges::mismatch(own, first_rank).in1 - own.begin();
  const std::vector<std::int64_t> places =
      gather_values(runtime.world(), static_cast<std::int64_t>(place));
  RankList ranks;
  int count = 0;
  std::int64_t first_place = std::ssize(parts);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank] == std::ssize(parts)) continue;
    ranks.add(static_cast<int>(rank));
    ++count;
    first_place = std::min(first_place, places[rank]);
  }
  const Part& part = parts[static_cast<std::size_t>(first_place)];
  const Error error(
      ErrorKind::peer,
      fmt::format("weight \"{}\" in {} is not the same on all ranks: rank {} {} other bytes than "
                  "rank 0 between {} and {} of it",
                  part.weight, std::filesystem::path(part.file).filename().string(), ranks.text(),
                  count == 1 ? "has" : "have", part.first, part.first + std::ssize(part.bytes)));
  throw AgreedError(error, runtime.is_first());
}

}  // namespace

bool verifies_packed(const Runtime& runtime, const ModelFiles& files) {
  return runtime.options().verify && (files.packed() != nullptr || runtime.world().size() == 1);
}

void require_same_weights(const Runtime& runtime, const ModelFiles& files) {
  if (runtime.world().size() == 1) return;
  const std::vector<Part> weights = stored_weights(files);
  const bool all = runtime.options().verify && files.packed() == nullptr;
  const std::vector<Part> parts = all ? cut_all(weights) : choose_samples(weights);
  const std::vector<std::uint64_t> own = checksums_of(runtime, files, parts);
  const std::uint64_t sum = checksum(std::as_bytes(std::span(own)));
  const std::vector<std::uint64_t> sums = gather_values(runtime.world(), sum);
  if (std::ranges::count(sums, sum) == std::ssize(sums)) return;
  tell_difference(runtime, parts, own);
}

}  // namespace moesaic
