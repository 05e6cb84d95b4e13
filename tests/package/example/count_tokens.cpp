// A program of somebody else that links the installed libraries: continues a text greedily on two
// ranks that are threads of this process, and counts tokens.    usage: count_tokens MODEL_DIR TEXT

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "src/generate/text_model.h"

namespace {

void run_rank(moesaic::Communicator& world, const char* directory, const std::string& text) {
  moesaic::TextModel model(world, directory);
  const std::vector<std::string> prompts = {text};  // those of rank 0 count
  const auto continued = model.continue_texts(prompts, {.max_new_tokens = 8, .temperature = 0});
  if (world.rank() != 0) return;
  std::printf("%zu tokens, continued: %s\n", model.tokenizer().encode(text).size(),
              continued[0].text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: count_tokens MODEL_DIR TEXT\n");
    return 2;
  }
  try {
    moesaic::run_thread_ranks(
        2, [&](moesaic::Communicator& world) { run_rank(world, argv[1], argv[2]); });
  } catch (const moesaic::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
