// A program of somebody else on MPI ranks: all of them hold the model together, rank 0 prints.
//     mpirun -n 2 continue_on_ranks MODEL_DIR TEXT

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/mpi_communicator.h"
#include "src/generate/text_model.h"

int main(int argc, char** argv) {
  moesaic::MpiSession session(&argc, &argv);
  if (argc != 3) {
    if (session.rank() == 0) std::fprintf(stderr, "usage: continue_on_ranks MODEL_DIR TEXT\n");
    return 2;
  }
  try {
    const auto world = moesaic::make_mpi_communicator(session);
    moesaic::TextModel model(*world, argv[1]);
    const std::vector<std::string> prompts = {argv[2]};  // those of rank 0 count
    const auto continued = model.continue_texts(prompts, {.max_new_tokens = 8, .temperature = 0});
    if (session.rank() != 0) return 0;
    std::printf("%d ranks, continued: %s\n", session.size(), continued[0].text.c_str());
  } catch (const moesaic::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    session.abort(1);
  }
}
