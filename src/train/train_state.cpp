#include "src/train/train_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_writer.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStateFile = "state.json";
constexpr std::string_view kValuesFile = "state.safetensors";
constexpr std::string_view kFormat = "moesaic-sft";
constexpr std::int64_t kVersion = 1;

/// What is kept of every value, a tensor each: all adapters of the model in its order, A before B.
constexpr std::array<std::string_view, 3> kParts = {"value", "first", "second"};

std::int64_t count_values(std::span<const AdapterSpec> all) {
  std::int64_t count = 0;
  for (const AdapterSpec& spec : all) count += spec.num_values();
  return count;
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

std::string TrainCheckpoints::path(std::int64_t steps) const {
  return fmt::format("{}/{}{}", directory_, kCheckpointPrefix, steps);
}

std::int64_t TrainCheckpoints::bytes() const {
  return std::ssize(kParts) * 4 * count_values(all_);
}

void TrainCheckpoints::write_values(const std::string& folder, const State& state,
                                    const AdapterExchange& exchange) const {
  std::optional<SafetensorsWriter> writer;
  if (exchange.is_first()) {
    std::vector<TensorSpec> tensors;
    for (const std::string_view part : kParts) {
      tensors.push_back(
          {.name = std::string(part), .dtype = DType::f32, .shape = {count_values(all_)}});
    }
    writer.emplace(folder + "/" + std::string(kValuesFile), std::move(tensors));
  }
  const std::array<std::span<const float>, 3> parts = {state.masters, state.moments.first,
                                                       state.moments.second};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::int64_t offset = 0;
    const auto write = [&](std::span<const float> values) {
      writer->write(kParts[part], offset, std::as_bytes(values));
      offset += std::ssize(std::as_bytes(values));
    };
    exchange.collect(parts[part],
                     [&](std::int64_t, std::span<const float> a, std::span<const float> b) {
                       write(a);
                       write(b);
                     });
  }
  if (writer) writer->finish();
}

void TrainCheckpoints::save(const TrainProgress& progress, const State& state,
                            const AdapterExchange& exchange, std::int64_t keep) const {
  const bool writes = exchange.is_first();
  const std::string place = path(progress.steps);
  const std::string part = place + ".part";
  if (writes) {
    fs::remove_all(part);
    std::error_code error;
    fs::create_directories(part, error);
    require(!error, ErrorKind::resource, "{}: cannot be made: {}", part, error.message());
  }
  write_values(part, state, exchange);
  if (!writes) return;
  replace_file(part + "/" + std::string(kStateFile), JsonWriter()
                                                             .field("format", kFormat)
                                                             .field("version", kVersion)
                                                             .field("steps", progress.steps)
                                                             .field("updates", progress.updates)
                                                             .field("digest", progress.digest)
                                                             .text() +
                                                         "\n");
  fs::remove_all(place);
  std::error_code error;
  fs::rename(part, place, error);
  require(!error, ErrorKind::resource, "{}: cannot take the name {}: {}", part, place,
          error.message());
  sync_directory(directory_);
  remove_all_but(keep);
}

std::vector<std::int64_t> TrainCheckpoints::steps_there() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kCheckpointPrefix) || !fs::exists(entry.path() / kStateFile)) continue;
    std::int64_t number = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kCheckpointPrefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) steps.push_back(number);
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<std::int64_t> TrainCheckpoints::newest() const {
  const std::vector<std::int64_t> steps = steps_there();
  if (steps.empty()) return std::nullopt;
  return steps.back();
}

void TrainCheckpoints::remove_all_but(std::int64_t keep) const {
  const std::vector<std::int64_t> steps = steps_there();
  for (std::int64_t i = 0; i < std::ssize(steps) - keep; ++i) {
    std::error_code error;
    fs::remove_all(path(steps[static_cast<std::size_t>(i)]), error);
  }
}

TrainProgress TrainCheckpoints::progress(std::int64_t steps) const {
  const Json state = Json::read_file(path(steps) + "/" + std::string(kStateFile));
  require(
      state.at("format").as_string_view() == kFormat && state.at("version").as_int() == kVersion,
      ErrorKind::file, "{}: not a state of moesaic sft, version {}", state.where(), kVersion);
  TrainProgress progress{.steps = state.at("steps").as_int(),
                         .updates = state.at("updates").as_int(),
                         .digest = state.at("digest").as_string()};
  require(progress.steps == steps, ErrorKind::file, "{}: steps is {}, not {}", state.where(),
          progress.steps, steps);
  require(progress.updates >= 0 && progress.updates <= steps, ErrorKind::file,
          "{}: updates is {}, of {} steps", state.where(), progress.updates, steps);
  return progress;
}

void TrainCheckpoints::load(std::int64_t steps, const AdapterExchange& exchange,
                            const State& state) const {
  std::optional<StateReader> reader;
  if (exchange.is_first()) {
    reader.emplace(path(steps) + "/" + std::string(kValuesFile), count_values(all_));
  }
  const std::array<std::span<float>, 3> parts = {state.masters, state.moments.first,
                                                 state.moments.second};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    exchange.distribute(parts[part], [&](std::int64_t, std::span<float> a, std::span<float> b) {
      reader->read(part, a);
      reader->read(part, b);
    });
  }
  if (reader) reader->require_read();
}

}  // namespace moesaic
