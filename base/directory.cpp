#include "base/directory.h"

#include "base/error.h"

namespace moesaic {

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& directory,
                                                         std::error_code& error) {
  std::vector<std::filesystem::directory_entry> entries;
  for (std::filesystem::directory_iterator at(directory, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    entries.push_back(*at);
  }
  return entries;
}

void make_directories(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", directory.string(),
          error.message());
}

}  // namespace moesaic
