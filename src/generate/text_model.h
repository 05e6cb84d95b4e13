#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// How a model is loaded and run; the same on all ranks, but for the threads.
struct TextModelOptions {
  int threads = 1;                     ///< of this rank
  bool full_precision = false;         ///< weights, activations and cache in f32
  std::string expert_format = "auto";  ///< formats of weights as `moesaic generate` names them
  std::string dense_format = "auto";
  std::string head_format = "auto";
};

/// How texts are continued; as the options of `moesaic generate`.
struct ContinueOptions {
  std::int64_t max_new_tokens = 128;
  double temperature = 0.8;  ///< 0: the likeliest token
  std::int64_t top_k = 40;   ///< 0: no limit
  double top_p = 0.95;       ///< 1: no limit
  double min_p = 0;          ///< 0: no limit
  std::uint64_t seed = 0;
  double repetition_penalty = 1;  ///< 1: none
  double frequency_penalty = 0;
  double presence_penalty = 0;
  bool ignore_end = false;  ///< go on after an end-of-sequence token
  std::vector<std::string> stop_strings{};
};

struct Continuation {
  std::string text;
  std::vector<std::int32_t> tokens;
  bool ended = false;  ///< by an end-of-sequence token or a stop string, else by its length
};

/// A model on all ranks of a communicator, which share its experts: the library in one class. Its
/// texts are those of `moesaic generate --numerics portable`, on any number of ranks.
class TextModel {
 public:
  /// Loads a checkpoint directory, or one that `moesaic convert` made. Collective. Throws
  /// Error{file} for what is missing or broken and Error{usage} for options that do not go
  /// together; other ranks then learn of it by their communicator. `world` must outlive this.
  TextModel(Communicator& world, const std::string& directory,
            const TextModelOptions& options = {});
  ~TextModel();
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  [[nodiscard]] const Tokenizer& tokenizer() const noexcept;
  /// Most tokens of one text with its continuation.
  [[nodiscard]] std::int64_t context_size() const noexcept;

  /// Continues the prompts of rank 0, each with a random stream of its own; they come back on rank
  /// 0, in their order. Collective. Throws Error{usage} for a prompt that is empty or longer than
  /// the context.
  [[nodiscard]] std::vector<Continuation> continue_texts(std::span<const std::string> prompts,
                                                         const ContinueOptions& options = {});

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moesaic
