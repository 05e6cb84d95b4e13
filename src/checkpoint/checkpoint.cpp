#include "src/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// The first file of the directory, by name, that ends so.
std::optional<std::string> first_file_ending(const std::string& directory, std::string_view end) {
  std::optional<std::string> found;
  std::error_code error;
  for (const auto& entry : entries_of(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(end) && (!found || name < *found)) found = name;
  }
  return found;
}

/// A download that is under way or was broken off.
std::string unfinished_advice(const std::string& directory) {
  for (const std::string& place : {directory, directory + "/.cache/huggingface/download"}) {
    for (const std::string_view end : {".incomplete", ".aria2", ".crdownload", ".part"}) {
      const auto name = first_file_ending(place, end);
      if (name) return fmt::format("; its download is not finished: {}/{}", place, *name);
    }
  }
  return "";
}

/// What a directory without safetensors holds instead, and what to do about it.
std::string advice(const std::string& directory) {
  if (file_exists(directory + "/adapter_config.json")) {
    return fmt::format("; it is an adapter: --lora {} adds it to the --model that it is of",
                       directory);
  }
  if (const auto name = first_file_ending(directory, ".safetensors")) {
    return fmt::format("; {} is there, but shards need their index: copy {} too", *name,
                       kIndexFile);
  }
  if (const auto name = first_file_ending(directory, ".gguf")) {
    return fmt::format(
        "; {} is a GGUF file, which is not read: get the Hugging Face form of this model", *name);
  }
  if (const auto name = first_file_ending(directory, ".bin")) {
    return fmt::format(
        "; {} holds PyTorch's pickled weights, which are not read: load the model with "
        "transformers "
        "and save it with save_pretrained",
        *name);
  }
  if (file_exists(directory + "/snapshots")) {
    return "; it is a cache of Hugging Face, whose checkpoints are the directories in snapshots";
  }
  return unfinished_advice(directory);
}

/// Repositories of Hugging Face have names of two words.
bool is_repository_name(std::string_view name) {
  constexpr std::string_view kWord =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size()) return false;
  const auto is_word = [&](std::string_view word) {
    return word.find_first_not_of(kWord) == std::string_view::npos && !word.starts_with('.');
  };
  return is_word(name.substr(0, slash)) && is_word(name.substr(slash + 1));
}

void check_directory(const std::string& directory) {
  if (!file_exists(directory)) {
    const std::string_view name = std::string_view(directory).substr(directory.find('/') + 1);
    require(!is_repository_name(directory), ErrorKind::file,
            "{0}: no such directory; if it is a repository of Hugging Face, hf download {0} "
            "--local-dir {1} gets it for --model {1}",
            directory, name);
    fail(ErrorKind::file, "{}: no such directory", directory);
  }
  std::error_code error;
  require(fs::is_directory(directory, error), ErrorKind::file,
          "{}: not a directory; a checkpoint is a directory with config.json and safetensors files",
          directory);
}

/// Shard file -> names of the tensors that the index puts in it.
using WeightMap = std::map<std::string, std::set<std::string>>;

WeightMap read_weight_map(const std::string& index_path) {
  WeightMap shards;
  const Json weight_map = Json::read_file(index_path, kMaxListBytes).at("weight_map");
  require(weight_map.is_object(), ErrorKind::file, "{}: expected an object", weight_map.where());
  weight_map.for_each([&](const std::string& tensor, const Json& value) {
    const std::string shard = value.as_string();
    require(!shard.empty() && shard.find('/') == std::string::npos &&
                shard.find('\0') == std::string::npos,
            ErrorKind::file, "{}: shard {} is no plain file name", value.where(),
            json_quote(shard));
    shards[shard].insert(tensor);
  });
  require(!shards.empty(), ErrorKind::file, "{}: weight_map is empty", index_path);
  return shards;
}

void require_all_shards(const Checkpoint& checkpoint, const WeightMap& shards) {
  std::string first_missing;
  std::int64_t num_missing = 0;
  for (const auto& [shard, tensors] : shards) {
    if (file_exists(checkpoint.path_of(shard))) continue;
    if (num_missing++ == 0) first_missing = shard;
  }
  require(num_missing == 0, ErrorKind::file,
          "{}: shard {} is missing ({} of {} shards are); {} names it{}", checkpoint.directory(),
          first_missing, num_missing, shards.size(), kIndexFile,
          unfinished_advice(checkpoint.directory()));
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& directory) {
  check_directory(directory);
  Checkpoint checkpoint(directory);
  require(file_exists(checkpoint.path_of("config.json")), ErrorKind::file,
          "{}: not a checkpoint: no config.json in it{}", directory,
          file_exists(checkpoint.path_of(kSingleFile)) ? "" : advice(directory));
  checkpoint.quantization_ = read_quantization_config(directory);
  if (file_exists(checkpoint.path_of(kSingleFile))) {
    checkpoint.open_single();
  } else if (file_exists(checkpoint.path_of(kIndexFile))) {
    checkpoint.open_shards();
  } else {
    fail(ErrorKind::file, "{}: not a checkpoint: neither {} nor {} in it{}", directory, kSingleFile,
         kIndexFile, advice(directory));
  }
  checkpoint.finish_index();
  return checkpoint;
}

Checkpoint Checkpoint::described(std::string directory, std::vector<TensorView> tensors) {
  Checkpoint checkpoint(std::move(directory));
  std::size_t longest = 0;
  const auto bytes_of = [](const TensorView& tensor) {
    std::int64_t bytes = dtype_bytes(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= size;
    return static_cast<std::size_t>(bytes);
  };
  for (const TensorView& tensor : tensors) longest = std::max(longest, bytes_of(tensor));
  checkpoint.unread_ = reserve_unread(longest);
  for (TensorView& tensor : tensors) tensor.bytes = {checkpoint.unread_.get(), bytes_of(tensor)};
  checkpoint.described_ = std::move(tensors);
  for (const TensorView& tensor : checkpoint.described_) checkpoint.tensors_.push_back(&tensor);
  checkpoint.finish_index();
  return checkpoint;
}

std::string Checkpoint::path_of(std::string_view file) const {
  return (fs::path(directory_) / file).string();
}

void Checkpoint::open_single() {
  files_.push_back(SafetensorsFile::open(path_of(kSingleFile)));
  for (const TensorView& tensor : files_.back().tensors()) {
    tensors_.push_back(&tensor);
  }
}

void Checkpoint::open_shards() {
  const WeightMap shards = read_weight_map(path_of(kIndexFile));
  require_all_shards(*this, shards);
  std::unordered_map<std::string_view, const TensorView*> seen;
  for (const auto& [shard, wanted] : shards) {
    // Views stay where they are when the file is moved: a moved vector keeps its elements.
    files_.push_back(SafetensorsFile::open(path_of(shard)));
    std::size_t num_found = 0;
    for (const TensorView& tensor : files_.back().tensors()) {
      const auto [other, is_new] = seen.emplace(tensor.name, &tensor);
      require(is_new, ErrorKind::file, "{}: tensor \"{}\" is also in {}", tensor.file, tensor.name,
              other->second->file);
      if (wanted.contains(tensor.name)) {
        tensors_.push_back(&tensor);
        ++num_found;
      } else {
        unindexed_.push_back(tensor.name);
      }
    }
    if (num_found == wanted.size()) continue;
    for (const std::string& name : wanted) {
      require(files_.back().find(name) != nullptr, ErrorKind::file,
              "{}: tensor \"{}\" is not in it, though {} says so", path_of(shard), name,
              kIndexFile);
    }
  }
}

void Checkpoint::finish_index() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  std::sort(unindexed_.begin(), unindexed_.end());
  for (const TensorView* tensor : tensors_) {
    by_name_.emplace(tensor->name, tensor);
    total_bytes_ += static_cast<std::int64_t>(tensor->bytes.size());
  }
}

const TensorView* Checkpoint::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const TensorView& Checkpoint::at(std::string_view name) const {
  const TensorView* tensor = find(name);
  require(tensor != nullptr, ErrorKind::file, "{}: tensor \"{}\" is missing", directory_, name);
  return *tensor;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const TensorView* tensor : tensors_) names.push_back(tensor->name);
  return names;
}

}  // namespace moesaic
