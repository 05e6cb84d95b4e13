// Writes what is made from the tables of verbs and options, when the program is built: the manual
// page and the completion of bash.    usage: write_manual MANUAL_PAGE COMPLETION

#include <fstream>
#include <string>

#include "launch/options/manual.h"

namespace {

bool write(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return static_cast<bool>(file.flush());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool written =
      write(argv[1], moesaic::manual_page()) && write(argv[2], moesaic::bash_completion());
  return written ? 0 : 4;
}
