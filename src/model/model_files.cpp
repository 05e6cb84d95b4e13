#include "src/model/model_files.h"

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

namespace moesaic {

ModelFiles ModelFiles::open(const std::string& directory) {
  ModelFiles files;
  if (PackedDirectory::is_one(directory)) {
    files.packed_ = std::make_shared<PackedDirectory>(PackedDirectory::open(directory));
  } else {
    files.checkpoint_ = std::make_shared<Checkpoint>(Checkpoint::open(directory));
  }
  return files;
}

ModelFiles ModelFiles::described(const std::string& directory, const ModelConfig& config,
                                 DType dtype) {
  std::map<std::string, TensorView> tensors;  // several slices may be of one
  const ModelNames names = find_model_names(config, [](std::string_view) { return false; });
  for_each_slice(names, [&](const TensorSlice& slice, bool) {
    tensors[slice.tensor] = {
        .name = slice.tensor, .dtype = dtype, .shape = slice.shape, .bytes = {}, .file = directory};
  });
  std::vector<TensorView> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  ModelFiles files;
  files.checkpoint_ =
      std::make_shared<Checkpoint>(Checkpoint::described(directory, std::move(all)));
  return files;
}

const std::string& ModelFiles::directory() const noexcept {
  return packed_ ? packed_->directory() : checkpoint_->directory();
}

std::string ModelFiles::path_of(std::string_view file) const {
  return (std::filesystem::path(directory()) / file).string();
}

std::int64_t ModelFiles::total_bytes() const noexcept {
  return packed_ ? packed_->manifest().total_bytes() : checkpoint_->total_bytes();
}

std::int64_t ModelFiles::num_files() const noexcept {
  return packed_ ? std::ssize(packed_->manifest().shards) : checkpoint_->num_files();
}

void ModelFiles::require_read() const {
  if (packed_) packed_->require_read();
  if (checkpoint_) checkpoint_->require_read();
}

void ModelFiles::release_pages() const noexcept {
  if (packed_) packed_->release_pages();
  if (checkpoint_) checkpoint_->release_pages();
}

ModelNames ModelFiles::names(const ModelConfig& config) const {
  return find_model_names(config, [&](std::string_view name) {
    return checkpoint_ != nullptr && checkpoint_->contains(name);
  });
}

}  // namespace moesaic
