#pragma once

#include <functional>
#include <string>

#include "launch/chat/chat_command.h"
#include "launch/chat/chat_screen.h"
#include "launch/chat/message_reader.h"
#include "src/generate/dialogue.h"

namespace moesaic {

/// Signals, as a conversation sees them.
struct ChatSignals {
  std::function<bool()> is_interrupted;  ///< Ctrl-C, since forget() was called
  std::function<void()> forget;
  std::function<bool()> is_over;  ///< the whole program is asked to stop
};

/// Reads messages, answers them and does what commands ask, until there are no more.
class ChatRoom {
 public:
  /// All must outlive this. `defaults` are for the dialogue's conversation, and those that are
  /// loaded.
  ChatRoom(Dialogue& dialogue, MessageReader& reader, ChatScreen& screen,
           const ConversationDefaults& defaults);

  /// Throws for what ends the program.
  void run(const ChatSignals& signals);
  /// "3 answers: prompt 120 tokens, 40 computed in 0.52 s (77 tokens/s); answer ...", in all.
  [[nodiscard]] std::string totals_text() const;
  [[nodiscard]] std::int64_t answers() const noexcept { return answers_; }

 private:
  void take(const Message& message, const ChatSignals& signals);
  /// Whether an answer is next.
  [[nodiscard]] bool obey(const ChatCommand& command);
  void answer(const ChatSignals& signals);
  void tell_end(const Turn& turn);
  void set_system(const std::string& text);
  void save(const std::string& argument);
  void load(const std::string& argument);
  void tell_size() const;
  void tell_statistics() const;

  Dialogue& dialogue_;
  MessageReader& reader_;
  ChatScreen& screen_;
  const ConversationDefaults& defaults_;
  std::string file_;  // that this conversation was saved to, or read from
  std::optional<std::int64_t> context_tokens_ = 0;  // of this conversation; none: not known
  Turn last_;
  Turn totals_;
  std::int64_t answers_ = 0;
  bool is_over_ = false;
};

}  // namespace moesaic
