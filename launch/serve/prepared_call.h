#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/input/requests.h"
#include "launch/serve/api_call.h"
#include "launch/serve/api_request.h"
#include "src/chat/chat_template.h"
#include "src/chat/conversation.h"
#include "src/serve/request_desk.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// What a server offers.
struct ServeOffer {
  std::string model;    // its name
  std::string api_key;  // empty: none is asked for
  std::int64_t vocab_size = 0;
  RequestDefaults completions;
  RequestDefaults chats;
  ConversationDefaults conversations;
};

/// A call, its requests, and what it wants of each.
struct PreparedCall {
  ApiRequest request;
  std::vector<RequestDesk::Order> orders{};
  std::vector<ApiCall::Choice> choices{};
  std::int64_t prompts = 0;
  std::int64_t prompt_tokens = 0;

  /// Its prompts, numbered from 0 so far, are numbers `first`, `first` + 1, ... of all. Chats go to
  /// the rank that had the conversation last.
  void number(std::int64_t first);
};

/// Makes requests of what calls ask for, which takes longer than a server's thread has time for: of
/// one other thread, but open().
class CallPreparer {
 public:
  /// The tokenizer and the template, which is null if the model has none, must outlive this. A call
  /// has at most so many texts.
  CallPreparer(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
               std::int64_t most_texts, ServeOffer offer);

  [[nodiscard]] const ServeOffer& offer() const noexcept { return offer_; }
  /// Texts may have so many tokens. Before the first call.
  void open(std::int64_t context_tokens);
  /// Throws Error{usage} for what cannot be run, or would take too much.
  [[nodiscard]] PreparedCall prepare(ApiRequest request);
  /// Throws Error{usage} if there is no template, Error{file} for what it refuses.
  [[nodiscard]] std::string chat_text(Chat chat) const;

 private:
  [[nodiscard]] std::vector<std::vector<std::int32_t>> prompts_of(const ApiRequest& request) const;
  [[nodiscard]] std::string echo_of(const ApiRequest& request, std::size_t index,
                                    std::span<const std::int32_t> tokens) const;
  /// Those of prompt number `index` of the call.
  void add_orders(std::int64_t index, std::vector<std::int32_t> tokens, PreparedCall& prepared);

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  std::int64_t most_texts_;
  ServeOffer offer_;
  Ticket next_ticket_ = 0;
};

}  // namespace moesaic
