#include "launch/job/srun_kinds.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

namespace moesaic {

std::vector<std::string> mpi_kinds(const std::string& listing) {
  std::vector<std::string> kinds;
  std::istringstream words(listing);
  for (std::string word; words >> word;) {
    while (!word.empty() && (word.back() == ',' || word.back() == ':')) word.pop_back();
    const bool is_kind =
        word.starts_with("pmi") || word.starts_with("cray_") || word == "none" || word == "openmpi";
    if (is_kind && std::ranges::find(kinds, word) == kinds.end()) kinds.push_back(word);
  }
  return kinds;
}

std::vector<std::string> srun_kinds() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      popen("timeout 10 srun --mpi=list </dev/null 2>&1", "r"), &pclose);
  if (pipe == nullptr) return {};
  std::string listing;
  std::array<char, 256> piece{};
  while (std::fgets(piece.data(), static_cast<int>(piece.size()), pipe.get()) != nullptr) {
    listing += piece.data();
  }
  return mpi_kinds(listing);
}

bool srun_has_pmix() {
  return std::ranges::any_of(srun_kinds(),
                             [](const std::string& kind) { return kind.starts_with("pmix"); });
}

}  // namespace moesaic
