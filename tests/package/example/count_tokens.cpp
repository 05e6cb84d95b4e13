// A program of somebody else that links the installed libraries: continues a text greedily on two
// ranks that are threads of this process, and counts tokens.    usage: count_tokens MODEL_DIR TEXT

#include <cstdio>
#include <memory>
#include <vector>

#include "comm/thread_communicator.h"
#include "src/generate/generator.h"
#include "src/tokenizer/tokenizer.h"

namespace {

void run_rank(moesaic::Communicator& world, const char* directory, const char* text) {
  using namespace moesaic;
  const ModelConfig config = read_model_config(directory);
  const Tokenizer tokenizer = Tokenizer::from_directory(directory);
  const ExpertPlacement placement(config.num_experts, world.size());
  ThreadPool pool(1);
  const std::unique_ptr<Communicator> node = world.split_node();
  const auto weights = load_model_weights(ModelFiles::open(directory), config,
                                          {.placement = &placement,
                                           .expert_rank = world.rank(),
                                           .node = node.get(),
                                           .pool = &pool,
                                           .progress = {}});
  const Isa isa = Isa::scalar;
  Transformer transformer(config, *weights, world,
                          {.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool});
  const std::vector<std::vector<std::int32_t>> prompts = {tokenizer.encode(text)};
  GenerateOptions options;
  options.max_new_tokens = 8;
  options.sampling.temperature = 0;
  const GenerateResult result = generate(transformer, world, prompts, options, {});
  if (world.rank() != 0) return;
  std::printf("%zu tokens, continued: %s\n", prompts[0].size(),
              tokenizer.decode(result.completions[0].tokens).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: count_tokens MODEL_DIR TEXT\n");
    return 2;
  }
  moesaic::run_thread_ranks(
      2, [&](moesaic::Communicator& world) { run_rank(world, argv[1], argv[2]); });
}
