#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launch/serve/api_call.h"
#include "launch/serve/prepared_call.h"
#include "src/chat/chat_template.h"
#include "src/serve/http_server.h"
#include "src/serve/request_desk.h"
#include "src/serve/serve_metrics.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// OpenAI's protocol: what clients ask goes to the desk, what the desk tells goes to them. Of the
/// server's thread alone.
class ServeApi {
 public:
  struct Parts {
    const Tokenizer& tokenizer;
    const ChatTemplate* chat_template;  // null: the model has none
    RequestDesk& desk;
    // HttpServer::post and post_aside:
    std::function<void(std::function<void()>)> post;
    std::function<void(std::function<void()>)> post_aside;
  };
  /// All must outlive this.
  ServeApi(const Parts& parts, ServeOffer offer);

  void handle(const HttpRequest& request, const std::shared_ptr<HttpAnswer>& answer);
  /// Before, calls for texts are refused as the model is loading. Texts may have so many tokens,
  /// and so many of them are under way at a time.
  void open(std::int64_t context_tokens, std::int64_t texts_at_once);
  /// Answers that are under way end, and calls are refused from now on.
  void close(std::string_view why);

  void take(Ticket ticket, const NewToken& token);
  void take(Ticket ticket, const PromptLogprob& logprob);
  void take(Ticket ticket, const Finished& finished);
  /// The call of this text ends with an error that is none of its own, if it is under way.
  void fail(Ticket ticket, std::string_view why);

 private:
  using Clock = std::chrono::steady_clock;
  using Answer = std::shared_ptr<HttpAnswer>;
  struct Route {
    std::string_view method;
    std::string_view path;
    void (ServeApi::*answer)(const HttpRequest&, const Answer&);
    bool is_public = false;
  };
  /// A text under way.
  struct Place {
    std::shared_ptr<ApiCall> call;
    std::size_t choice = 0;
    Clock::time_point start;
    bool has_begun = false;
  };

  [[nodiscard]] static std::span<const Route> routes();
  void refuse(const Answer& answer, HttpResponse response);
  [[nodiscard]] bool is_let_in(const HttpRequest& request) const;
  void tell_health(const HttpRequest& request, const Answer& answer);
  void tell_models(const HttpRequest& request, const Answer& answer);
  void tell_model(const HttpRequest& request, const Answer& answer);
  [[nodiscard]] std::string model_json() const;
  void tell_metrics(const HttpRequest& request, const Answer& answer);
  void tokenize(const HttpRequest& request, const Answer& answer);
  void detokenize(const HttpRequest& request, const Answer& answer);
  void apply_template(const HttpRequest& request, const Answer& answer);
  void complete(const HttpRequest& request, const Answer& answer);
  void chat(const HttpRequest& request, const Answer& answer);

  /// Calls `prepare` aside, then what it returns; what either throws is the answer.
  void answer_aside(const Answer& answer, std::function<std::function<void()>()> prepare);
  void call(ApiKind kind, const HttpRequest& request, const Answer& answer);
  void begin(PreparedCall& prepared, const Answer& answer);
  /// The call's texts are not wanted any more.
  void drop(const ApiCall& call);
  [[nodiscard]] ReplyHead new_head(ApiKind kind);

  Parts parts_;
  CallPreparer preparer_;  // aside
  std::string salt_;       // of this server's ids
  std::int64_t calls_ = 0;
  std::int64_t prompts_ = 0;  // of calls that were taken
  bool is_open_ = false;
  std::int64_t texts_at_once_ = 0;
  std::string closed_;  // why; empty: it is not
  Clock::time_point start_ = Clock::now();
  std::int64_t created_;  // seconds since 1970
  std::unordered_map<Ticket, Place> places_;
  ServeMetrics metrics_;
};

}  // namespace moesaic
