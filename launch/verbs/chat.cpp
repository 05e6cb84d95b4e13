#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/signal_watch.h"
#include "launch/chat/chat_room.h"
#include "launch/chat/edited_lines.h"
#include "launch/input/chat_prompts.h"
#include "launch/input/sampling_choice.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/results/run_statistics.h"
#include "src/chat/turn_end.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

/// What rank 0 has read besides the model.
struct ChatInput {
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  ConversationDefaults defaults;
  SamplingChoice sampling;
};

std::optional<ChatInput> read_input(const Runtime& runtime, const OpenModel& model) {
  const Options& options = runtime.options();
  std::optional<ChatInput> input;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    const std::string& directory = model.files.directory();
    input.emplace(ChatInput{Tokenizer::from_directory(directory),
                            ChatTemplate::from_directory(directory, options.chat_template),
                            conversation_defaults(options),
                            choose_sampling(runtime.command(), read_generation_defaults(directory),
                                            model.config.vocab_size)});
  });
  return input;
}

/// Rank 0 alone talks: the one sequence is its own.
Workload plan_work(const Runtime& runtime, const ModelConfig& config) {
  const Options& options = runtime.options();
  const std::int64_t context = context_limit(options, config);
  return {.sequences = runtime.is_first() ? 1 : 0,
          .capacity = context,
          .batch_tokens = std::min(options.batch_size, context),
          .logits_rows = 1,
          .least_capacity = options.ctx_size > 0 ? 0 : std::min(context, kLeastContext)};
}

StepOptions step_options(const Runtime& runtime, const ModelConfig& config,
                         const std::optional<ChatInput>& input, std::int64_t capacity) {
  return {.batch_tokens = runtime.options().batch_size,
          .parallel = 1,
          .cache_bytes = KvPool::sequence_bytes(config, runtime.precision(), capacity),
          .tokenizer = input ? &input->tokenizer : nullptr,
          .stop_wanted = [&runtime] { return runtime.interruption().wanted(); }};
}

DialogueOptions dialogue_options(const Runtime& runtime, const ModelConfig& config,
                                 const ChatInput& input, std::int64_t context) {
  const Options& options = runtime.options();
  DialogueOptions result{.max_new_tokens = options.answer_tokens,
                         .context_tokens = context,
                         .sampling = input.sampling.options,
                         .stop_strings = options.stop};
  if (!options.ignore_eos) {
    result.stop_tokens = config.eos_token_ids;
    const auto end = turn_end_token(input.chat_template, input.tokenizer);
    if (end) result.stop_tokens.push_back(*end);
  }
  return result;
}

std::unique_ptr<LineSource> open_lines(const Runtime& runtime, Waiting waiting) {
  const Options& options = runtime.options();
  const bool is_seen = ::isatty(STDOUT_FILENO) == 1 || ::isatty(STDERR_FILENO) == 1;
  if (::isatty(STDIN_FILENO) == 1 && is_seen) {
    return std::make_unique<EditedLines>(
        std::move(waiting), options.history ? *options.history : default_history_file());
  }
  return std::make_unique<PlainLines>(STDIN_FILENO, std::move(waiting),
                                      runtime.log().enabled(LogLevel::info));
}

/// The conversation, on rank 0. The other ranks wait for its next step meanwhile, and must not wait
/// in vain.
void talk(const Runtime& runtime, StepEngine& engine, Dialogue& dialogue,
          const ConversationDefaults& defaults) {
  const Options& options = runtime.options();
  constexpr std::array kInterrupt = {SIGINT};
  SignalWatch watch(kInterrupt);
  bool stop_wanted = false;  // by any rank, while nobody asks
  const ChatSignals signals{
      .is_interrupted = [&] { return watch.caught().has_value(); },
      .forget = [&] { watch.forget(); },
      .is_over = [&] { return stop_wanted || runtime.interruption().wanted(); }};
  const auto on_idle = [&] { stop_wanted = engine.step().stop_wanted || stop_wanted; };
  const auto lines = open_lines(
      runtime,
      {.on_idle = on_idle, .is_interrupted = signals.is_interrupted, .is_over = signals.is_over});
  ChatScreen screen(options.colour == Colour::on ||
                    (options.colour == Colour::automatic && terminal_has_colours()));
  MessageReader reader(*lines, screen.prompt());
  ChatRoom room(dialogue, reader, screen, defaults);
  room.run(signals);
  if (room.answers() > 0) {
    runtime.log().once(LogLevel::info, "{}", room.totals_text());
  }
}

}  // namespace

void run_chat(Runtime& runtime) {
  const OpenModel model = open_model(runtime);
  const std::optional<ChatInput> input = read_input(runtime, model);
  announce(runtime);
  Engine loaded(runtime, model, plan_work(runtime, model.config));
  const std::int64_t context = loaded.capacity();
  runtime.run_or_end_early("the conversation is over", [&] {
    StepEngine engine(loaded.transformer(), runtime.world(),
                      step_options(runtime, model.config, input, context));
    if (runtime.is_first()) {
      Dialogue dialogue({engine, input->tokenizer, input->chat_template},
                        dialogue_options(runtime, model.config, *input, context));
      runtime.log().once(LogLevel::info, "{}", input->sampling.text);
      runtime.log().once(LogLevel::info, "context of {} tokens; /help lists commands", context);
      talk(runtime, engine, dialogue, input->defaults);
      engine.dismiss();
      (void)engine.step();
    } else {
      while (!engine.step().dismissed) continue;
    }
    runtime.leave_if_stop_wanted();
  });
}

}  // namespace moesaic
