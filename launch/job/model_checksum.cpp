#include "launch/job/model_checksum.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/directory.h"
#include "base/error.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// A small file whole, of a large one the beginning, the middle and the end.
void add_samples(Checksum& sum, const std::string& path) {
  constexpr std::size_t kWhole = std::size_t{64} << 20;
  constexpr std::size_t kSample = std::size_t{64} << 10;
  std::error_code missing;
  if (fs::file_size(path, missing) == 0) return;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::size_t size = bytes.size();
  sum.add(std::as_bytes(std::span(&size, 1)));
  if (size <= kWhole) return sum.add(bytes);
  for (const std::size_t at : {std::size_t{0}, size / 2, size - kSample}) {
    sum.add(bytes.subspan(at, kSample));
  }
}

}  // namespace

std::string model_checksum(const std::string& directory) {
  constexpr std::array<std::string_view, 4> kKinds = {".json", ".safetensors", ".bin", ".jinja"};
  std::error_code error;
  const std::vector<fs::directory_entry> entries = entries_of(directory, error);
  require(!error, ErrorKind::file, "cannot read the directory {}: {}", directory, error.message());
  std::vector<fs::path> paths;
  for (const auto& entry : entries) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file() && std::ranges::find(kKinds, kind) != kKinds.end()) {
      paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  Checksum sum;
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    sum.add(std::as_bytes(std::span(name)));
    add_samples(sum, path.string());
  }
  return checksum_text(sum.value());
}

std::string file_checksum(const std::string& path) {
  Checksum sum;
  add_samples(sum, path);
  return checksum_text(sum.value());
}

}  // namespace moesaic
