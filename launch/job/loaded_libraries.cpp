#include "launch/job/loaded_libraries.h"

#include <link.h>

namespace moesaic {

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> files;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &files);
  return files;
}

}  // namespace moesaic
