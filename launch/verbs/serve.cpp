#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "base/small_file.h"
#include "launch/input/chat_prompts.h"
#include "launch/input/sampling_choice.h"
#include "launch/job/agreement.h"
#include "launch/job/expert_balance.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/results/run_statistics.h"
#include "launch/serve/serve_api.h"
#include "src/chat/turn_end.h"
#include "src/generate/prompt_logprobs.h"
#include "src/serve/http_server.h"
#include "src/serve/request_desk.h"

namespace moesaic {
namespace {

/// Of a completion that does not say it, as in OpenAI's API; chats go on until the answer ends.
constexpr std::int64_t kCompletionTokens = 16;

/// What rank 0 has read besides the model.
struct ServeInput {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  SamplingChoice sampling;
};

std::string model_name(const Options& options) {
  if (!options.model_name.empty()) return options.model_name;
  const std::filesystem::path path = std::filesystem::weakly_canonical(options.model);
  return path.filename().string();
}

std::string read_key(const std::string& path) {
  constexpr std::int64_t kMostKey = 4096;
  std::string key = read_file(path, kMostKey);
  key.erase(std::min(key.find_first_of("\r\n"), key.size()));
  require(!key.empty(), ErrorKind::file, "{}: its first line, the key, is empty", path);
  return key;
}

ServeOffer make_offer(const Options& options, const ModelConfig& config, const ServeInput& input) {
  ServeOffer offer{.model = model_name(options),
                   .api_key = options.api_key_file ? read_key(*options.api_key_file) : "",
                   .vocab_size = config.vocab_size,
                   .completions = {.sampling = input.sampling.options,
                                   .max_tokens = kCompletionTokens,
                                   .stop = options.stop,
                                   .stop_tokens = config.eos_token_ids,
                                   .ignore_eos = options.ignore_eos,
                                   .vocab_size = config.vocab_size},
                   .chats = {},
                   .conversations = conversation_defaults(options)};
  offer.chats = offer.completions;
  offer.chats.max_tokens = -1;
  if (input.chat_template) {
    const auto end = turn_end_token(*input.chat_template, input.tokenizer);
    if (end) offer.chats.stop_tokens.push_back(*end);
  }
  return offer;
}

/// All that rank 0 has between its clients and the engine.
class Service {
 public:
  Service(const Options& options, ServeInput input, ServeOffer offer)
      : input_(std::move(input)),
        desk_(options.max_waiting),
        api_({.tokenizer = input_.tokenizer,
              .chat_template = input_.chat_template ? &*input_.chat_template : nullptr,
              .desk = desk_,
              .post = [this](auto work) { server_.post(std::move(work)); },
              .post_aside = [this](auto work) { server_.post_aside(std::move(work)); }},
             std::move(offer)),
        server_({.host = options.host, .port = options.port}, HttpLimits{},
                {.answer =
                     [this](const HttpRequest& request, const std::shared_ptr<HttpAnswer>& answer) {
                       api_.handle(request, answer);
                     },
                 .refuse = api_error}) {}
  ~Service() {
    server_.post([this] { api_.close("the server is stopping"); });
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  [[nodiscard]] const ServeInput& input() const noexcept { return input_; }
  [[nodiscard]] const std::string& address() const noexcept { return server_.address(); }
  void open(std::int64_t context_tokens, std::int64_t texts_at_once) {
    server_.post(
        [this, context_tokens, texts_at_once] { api_.open(context_tokens, texts_at_once); });
  }
  [[nodiscard]] RequestFeed feed() {
    return desk_.feed(
        {.on_token = [this](Ticket ticket, const NewToken& token) { tell(ticket, token); },
         .on_prompt_logprob = [this](Ticket ticket,
                                     const PromptLogprob& logprob) { tell(ticket, logprob); },
         .on_finished = [this](Ticket ticket,
                               Finished&& finished) { tell(ticket, std::move(finished)); }});
  }
  void end_step(std::span<const PromptLogprob> logprobs) { desk_.end_step(logprobs); }

 private:
  template <typename News>
  void tell(Ticket ticket, News news) {
    server_.post([this, ticket, news = std::move(news)] {
      try {
        api_.take(ticket, news);
      } catch (...) {
        api_.fail(ticket, current_error().what());
      }
    });
  }

  ServeInput input_;
  RequestDesk desk_;
  ServeApi api_;
  HttpServer server_;
};

/// Of rank 0: listens from now on. Collective.
std::unique_ptr<Service> open_service(const Runtime& runtime, const OpenModel& model) {
  std::unique_ptr<Service> service;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    const Options& options = runtime.options();
    require(!options.host.empty(), ErrorKind::usage,
            "--host \"\": an address has to be named; 0.0.0.0 stands for all of this machine");
    const std::string& directory = model.files.directory();
    std::optional<ChatFiles> chat = find_chat_files(directory, options.chat_template);
    ServeInput input{
        .tokenizer = Tokenizer::from_directory(directory),
        .chat_template = {},
        .sampling = choose_sampling(runtime.command(), read_generation_defaults(directory),
                                    model.config.vocab_size)};
    if (chat) input.chat_template.emplace(*std::move(chat));
    ServeOffer offer = make_offer(options, model.config, input);
    service = std::make_unique<Service>(options, std::move(input), std::move(offer));
  });
  return service;
}

/// Until a rank is asked to stop. Collective.
void serve(const Runtime& runtime, const ModelConfig& config, const Workload& work, Engine& engine,
           Service* service) {
  const std::int64_t context =
      std::min(context_limit(runtime.options(), config), engine.capacity());
  StepOptions step_options =
      text_options(runtime, config, work, engine.capacity(),
                   service != nullptr ? &service->input().tokenizer : nullptr);
  step_options.short_prompts_first = true;
  StepEngine steps(engine.transformer(), runtime.world(), step_options);
  if (service != nullptr) {
    service->open(context, runtime.options().parallel * runtime.world().size());
    runtime.log().once(LogLevel::info, "http://{} answers; context of {} tokens",
                       service->address(), context);
  }
  RequestFeed feed = service != nullptr ? service->feed() : RequestFeed{};
  feed.on_step = [&](std::span<const LogitsRows> rows, bool wants_logits) {
    std::vector<PromptLogprob> logprobs;
    if (wants_logits) {
      logprobs = gather_prompt_logprobs(engine.transformer().compute(), runtime.world(), rows);
    }
    if (service != nullptr) service->end_step(logprobs);
  };
  (void)run_requests(steps, feed);
  const ExpertLoads loads(runtime, engine);
  RunStatistics statistics = gather_run(runtime, engine, steps.statistics());
  statistics.balance = loads.balance();
  runtime.log().once(LogLevel::info, "stopped\n\n{}", statistics_text(statistics));
  loads.record();
}

}  // namespace

void run_serve(Runtime& runtime) {
  const OpenModel model = open_model(runtime);
  const std::unique_ptr<Service> service = open_service(runtime, model);
  announce(runtime);
  if (service) {
    runtime.log().once(LogLevel::info, "{}", service->input().sampling.text);
    runtime.log().once(LogLevel::info, "http://{} is there; the model is loading",
                       service->address());
  }
  try {
    const Workload work = serve_workload(runtime.options(), model.config);
    Engine engine(runtime, model, work);
    engine.transformer().reset_statistics();
    serve(runtime, model.config, work, engine, service.get());
  } catch (const Interrupted&) {  // while it loads: nothing is left undone then, either
    runtime.log().once(LogLevel::info, "stopped before the model was loaded");
  }
}

}  // namespace moesaic
