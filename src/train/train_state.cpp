#include "src/train/train_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/lora/adapter_files.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStateFile = "state.json";
constexpr std::string_view kValuesFile = "state.safetensors";
/// Of a checkpoint, in the order in which they go to their place and are removed: the last one says
/// that all are there, and an adapter without a state would be another's.
constexpr std::array<std::string_view, 4> kFiles = {kAdapterTensorsFile, kAdapterConfigFile,
                                                    kValuesFile, kStateFile};
constexpr std::size_t kNumAdapterFiles = 2;
constexpr std::string_view kFormat = "moesaic-sft";
constexpr std::int64_t kVersion = 4;  // 3 did not know --lora, 2 another digest, 1 no checksum
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartEnd = ".part";

/// What is kept of every value, a tensor each: all adapters of the model in its order, A before B.
constexpr std::array<std::string_view, 3> kParts = {"value", "first", "second"};

/// Where a file, or what a killed run has left of it, stands in kFiles; behind them for others.
std::size_t file_index(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string_view part_of = name_of_part(name);
  const std::string_view whole = part_of.empty() ? name : part_of;
  return static_cast<std::size_t>(std::ranges::find(kFiles, whole) - kFiles.begin());
}

/// Of the state that a checkpoint holds.
std::string checksum_of(const TrainProgress& progress, std::uint64_t values) {
  return checksum_text(checksum(
      fmt::format("{} {} {} {} {} {} {}", progress.steps, progress.updates, progress.digest,
                  progress.model, progress.data, progress.adapter, checksum_text(values))));
}

/// Of all values in a file, part by part.
std::uint64_t read_checksum(const SafetensorsFile& file, const TrainCheckpoints::Watch& watch) {
  Checksum sum;
  std::int64_t done = 0;
  for (const std::string_view part : kParts) {
    const TensorView* const tensor = file.find(part);
    require(tensor != nullptr, ErrorKind::file, "{}: no tensor {}", file.path(), part);
    const std::int64_t total = std::ssize(kParts) * std::ssize(tensor->bytes);
    add_to_checksum(sum, tensor->bytes, [&](std::int64_t bytes) {
      done += bytes;
      if (watch) watch(done, total);
    });
  }
  file.require_read();
  return sum.value();
}

/// Whether something of a checkpoint is in the directory, or nothing at all.
bool is_checkpoint(const fs::path& directory) {
  std::error_code no_directory;
  if (fs::is_empty(directory, no_directory) && !no_directory) return true;
  return has_train_state(directory.string());
}

/// Reads the tensors of a state from front to back.
class StateReader {
 public:
  StateReader(const std::string& path, std::int64_t values) : file_(SafetensorsFile::open(path)) {
    for (const std::string_view part : kParts) {
      const TensorView* tensor = file_.find(part);
      require(tensor != nullptr && tensor->dtype == DType::f32 &&
                  std::ssize(tensor->bytes) == values * 4,
              ErrorKind::file, "{}: expected a tensor {} of {} elements of F32", path, part,
              values);
      tensors_.push_back(tensor->bytes);
    }
  }

  void read(std::size_t part, std::span<float> values) {
    const auto bytes = tensors_[part].first(values.size_bytes());
    std::ranges::copy(bytes, std::as_writable_bytes(values).begin());
    tensors_[part] = tensors_[part].subspan(bytes.size());
  }
  void require_read() const { file_.require_read(); }

 private:
  SafetensorsFile file_;
  std::vector<std::span<const std::byte>> tensors_;  // what is still to be read of each part
};

}  // namespace

std::optional<std::int64_t> checkpoint_steps(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t steps = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, steps);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (name != fmt::format("{}{}", kPrefix, steps) || steps < 0) return std::nullopt;  // 06
  return steps;
}

bool is_checkpoint_part(std::string_view name) {
  return name.ends_with(kPartEnd) &&
         checkpoint_steps(name.substr(0, name.size() - kPartEnd.size())).has_value();
}

bool is_of_checkpoint(std::string_view file) {
  return file_index(file) < kFiles.size();
}

/// Be it what cannot be looked at.
bool has_train_state(const std::string& directory) {
  return std::ranges::any_of(std::array{kStateFile, kValuesFile}, [&](std::string_view name) {
    std::error_code error;
    return fs::status(fs::path(directory) / name, error).type() != fs::file_type::not_found;
  });
}

std::error_code remove_checkpoint(const std::string& directory) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(directory, error))) {  // what it leads to is not the run's
    fs::remove(directory, error);
    return error;
  }
  const bool is_own = has_train_state(directory);  // else an adapter in it is another's
  std::vector<fs::path> written;
  for (const auto& entry : entries_of(directory, error)) {
    const std::size_t index = file_index(entry.path());
    if (index >= (is_own ? 0 : kNumAdapterFiles) && index < kFiles.size()) {
      written.push_back(entry.path());
    }
  }
  std::ranges::sort(written, {}, file_index);
  std::error_code first = error == std::errc::no_such_file_or_directory ? std::error_code() : error;
  for (const fs::path& file : written) {
    if (!fs::remove(file, error) && !first) first = error;
  }
  fs::remove(directory, error);
  return first;
}

std::string TrainCheckpoints::path(std::int64_t steps) const {
  return fmt::format("{}/{}{}", directory_, kPrefix, steps);
}

std::int64_t TrainCheckpoints::num_values() const {
  std::int64_t count = 0;
  for (const AdapterSpec& spec : adapter_.adapters) count += spec.num_values();
  return count;
}

std::int64_t TrainCheckpoints::state_bytes() const {
  return std::ssize(kParts) * 4 * num_values();
}

std::int64_t TrainCheckpoints::bytes() const {
  return state_bytes() + adapter_file_bytes(adapter_);
}

std::uint64_t TrainCheckpoints::write_values(const std::string& folder, const State& state,
                                             const AdapterExchange& exchange) const {
  Checksum sum;
  std::optional<SafetensorsWriter> writer;
  if (exchange.is_first()) {
    std::vector<TensorSpec> tensors;
    for (const std::string_view part : kParts) {
      tensors.push_back({.name = std::string(part), .dtype = DType::f32, .shape = {num_values()}});
    }
    writer.emplace(folder + "/" + std::string(kValuesFile), std::move(tensors));
  }
  const std::array<std::span<const float>, 3> parts = {state.masters, state.moments.first,
                                                       state.moments.second};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::int64_t offset = 0;
    const auto write = [&](std::span<const float> values) {
      writer->write(kParts[part], offset, std::as_bytes(values));
      sum.add(std::as_bytes(values));
      offset += std::ssize(std::as_bytes(values));
    };
    exchange.collect(parts[part],
                     [&](std::int64_t, std::span<const float> a, std::span<const float> b) {
                       write(a);
                       write(b);
                     });
  }
  if (writer) writer->finish();
  return sum.value();
}

void TrainCheckpoints::save(const TrainProgress& progress, const State& state,
                            const AdapterExchange& exchange, const Kept& kept) {
  const bool writes = exchange.is_first();
  const std::string place = path(progress.steps);
  const std::string part = place + std::string(kPartEnd);
  if (writes) {
    remove_checkpoint(part);
    make_directories(part);
  }
  const std::uint64_t values = write_values(part, state, exchange);
  save_adapter(part, adapter_, state.masters, exchange);
  if (!writes) return;
  replace_file(part + "/" + std::string(kStateFile),
               JsonWriter()
                       .field("format", kFormat)
                       .field("version", kVersion)
                       .field("steps", progress.steps)
                       .field("updates", progress.updates)
                       .field("digest", progress.digest)
                       .field("model", progress.model)
                       .field("data", progress.data)
                       .field("adapter", progress.adapter)
                       .field("checksum", checksum_of(progress, values))
                       .text() +
                   "\n");
  take_place(part, place);
  std::erase_if(damaged_, [&](const Damaged& damaged) {
    return damaged.steps == progress.steps || !remove_checkpoint(path(damaged.steps));
  });
  remove_all_but(kept, progress.steps);
}

/// What a run has written at `place` goes; what others have put there stays, beside the files.
void TrainCheckpoints::take_place(const std::string& part, const std::string& place) const {
  std::error_code error = remove_checkpoint(place);
  if (!error && !fs::exists(place, error)) {
    fs::rename(part, place, error);
  } else {
    for (const std::string_view file : kFiles) {
      if (!error) fs::rename(fs::path(part) / file, fs::path(place) / file, error);
    }
    if (!error) sync_directory(place);
    if (!error) fs::remove(part, error);
  }
  require(!error, ErrorKind::resource, "{}: cannot take the name {}: {}", part, place,
          error.message());
  sync_directory(directory_);
}

std::vector<std::int64_t> TrainCheckpoints::steps_there(std::error_code& error) const {
  std::vector<std::int64_t> there;
  for (const auto& entry : entries_of(directory_, error)) {
    const auto steps = checkpoint_steps(entry.path().filename().string());
    if (steps && is_checkpoint(entry.path())) there.push_back(*steps);
  }
  std::ranges::sort(there);
  return there;
}

std::int64_t TrainCheckpoints::count_full() const {
  std::error_code error;
  return std::ranges::count_if(steps_there(error), [&](std::int64_t steps) {
    const std::uintmax_t size = fs::file_size(fs::path(path(steps)) / kValuesFile, error);
    return !error && size >= static_cast<std::uintmax_t>(state_bytes());
  });
}

void TrainCheckpoints::remove_all_but(const Kept& kept, std::int64_t newest) const {
  std::error_code error;  // what cannot be listed stays
  std::vector<std::int64_t> whole = steps_there(error);
  std::erase_if(whole, [&](std::int64_t steps) {
    return steps > newest || std::ranges::find(damaged_, steps, &Damaged::steps) != damaged_.end();
  });
  for (std::int64_t i = 0; i < std::ssize(whole) - kept.newest; ++i) {
    const std::int64_t steps = whole[static_cast<std::size_t>(i)];
    if (steps != kept.also) remove_checkpoint(path(steps));
  }
}

TrainProgress TrainCheckpoints::read_whole(std::int64_t steps, const Watch& watch) const {
  const Json state = Json::read_file(path(steps) + "/" + std::string(kStateFile));
  const std::string_view format = state.at("format").as_string_view();
  require(format == kFormat, ErrorKind::file, "{}: format is {}, not {}", state.where(), format,
          kFormat);
  const std::int64_t version = state.at("version").as_int();
  require(version == kVersion, ErrorKind::usage,
          "{}: {}, version {}; this program goes on from {}, version {}, or begins anew with "
          "--overwrite in place of --resume",
          state.where(), format, version, kFormat, kVersion);
  TrainProgress progress{.steps = state.at("steps").as_int(),
                         .updates = state.at("updates").as_int(),
                         .digest = state.at("digest").as_string(),
                         .model = state.at("model").as_string(),
                         .data = state.at("data").as_string(),
                         .adapter = state.at("adapter").as_string()};
  require(progress.steps == steps, ErrorKind::file, "{}: steps is {}, not {}", state.where(),
          progress.steps, steps);
  const std::string expected = state.at("checksum").as_string();
  const auto file = SafetensorsFile::open(path(steps) + "/" + std::string(kValuesFile));
  const std::string found = checksum_of(progress, read_checksum(file, watch));
  require(found == expected, ErrorKind::file,
          "{}: the checksum of it and of {} is {}, not {}: one of them is damaged", state.where(),
          kValuesFile, found, expected);
  return progress;
}

std::optional<TrainProgress> TrainCheckpoints::find_newest(const Watch& watch) {
  damaged_.clear();
  std::error_code unlisted;
  std::vector<std::int64_t> there = steps_there(unlisted);
  require(!unlisted || unlisted == std::errc::no_such_file_or_directory, ErrorKind::file,
          "{}: cannot be read: {}", directory_, unlisted.message());
  for (; !there.empty(); there.pop_back()) {
    try {
      return read_whole(there.back(), watch);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::file) throw;
      damaged_.push_back({there.back(), error.what()});
    }
  }
  require(damaged_.empty(), ErrorKind::file,
          "{}; there is no checkpoint before it that is whole: --overwrite in place of --resume "
          "begins anew",
          damaged_.empty() ? "" : damaged_.front().what);
  return std::nullopt;
}

std::vector<std::string> TrainCheckpoints::damaged() const {
  std::vector<std::string> texts;
  for (const Damaged& damaged : damaged_) texts.push_back(damaged.what);
  return texts;
}

void TrainCheckpoints::load(std::int64_t steps, const AdapterExchange& exchange,
                            const State& state) const {
  std::optional<StateReader> reader;
  if (exchange.is_first()) {
    reader.emplace(path(steps) + "/" + std::string(kValuesFile), num_values());
  }
  const std::array<std::span<float>, 3> parts = {state.masters, state.moments.first,
                                                 state.moments.second};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    exchange.distribute(parts[part], [&](std::span<float> a, std::span<float> b) {
      reader->read(part, a);
      reader->read(part, b);
    });
  }
  if (reader) reader->require_read();
}

}  // namespace moesaic
