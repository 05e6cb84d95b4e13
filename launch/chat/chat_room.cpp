#include "launch/chat/chat_room.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>

#include "base/counted.h"
#include "base/error.h"
#include "base/progress.h"
#include "launch/chat/chat_file.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

double per_second(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

std::string rate_text(std::int64_t tokens, double seconds) {
  const double rate = per_second(tokens, seconds);
  const std::string digits = rate < 100 ? fmt::format("{:.3g}", rate) : fmt::format("{:.0f}", rate);
  return fmt::format("{:.3g} s ({} tokens/s)", seconds, digits);
}

/// What a template may be given.
const std::string& checked(const std::string& text) {
  require(is_valid_utf8(text), ErrorKind::usage, "this is not UTF-8, and nothing of it is taken");
  return text;
}

/// A text of several words has quotes around it, or none.
std::string unquoted(const std::string& text) {
  const bool is_quoted = text.size() >= 2 && text.starts_with('"') && text.ends_with('"');
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

std::string turn_text(const std::string& label, const Turn& turn) {
  return fmt::format("{}: prompt {} tokens, {} computed in {}; answer {} tokens in {}", label,
                     turn.prompt_tokens, turn.computed_tokens,
                     rate_text(turn.computed_tokens, turn.prompt_seconds), turn.answer_tokens,
                     rate_text(turn.answer_tokens, turn.answer_seconds));
}

/// Whether a person can go on after it.
bool is_told(const Error& error) {
  return error.kind() == ErrorKind::usage || error.kind() == ErrorKind::file ||
         error.kind() == ErrorKind::resource;
}

}  // namespace

ChatRoom::ChatRoom(Dialogue& dialogue, MessageReader& reader, ChatScreen& screen,
                   const ConversationDefaults& defaults)
    : dialogue_(dialogue), reader_(reader), screen_(screen), defaults_(defaults) {
  dialogue_.conversation().add_defaults(defaults_);
}

void ChatRoom::run(const ChatSignals& signals) {
  int interruptions = 0;  // in a row
  while (!is_over_) {
    const Message message = reader_.read();
    if (message.kind == Line::Kind::end) return;
    if (message.kind == Line::Kind::text) {
      interruptions = 0;
      take(message, signals);
      continue;
    }
    signals.forget();
    if (++interruptions == 2) return;
    screen_.note("Ctrl-C once more ends the program");
  }
}

void ChatRoom::take(const Message& message, const ChatSignals& signals) {
  try {
    const auto command = message.is_quoted ? std::nullopt : parse_chat_command(message.text);
    if (command && !obey(*command)) return;
    if (!command) dialogue_.ask(checked(message.text));
  } catch (const Error& error) {
    if (!is_told(error)) throw;
    screen_.error(error.what());
    return;
  }
  answer(signals);
}

bool ChatRoom::obey(const ChatCommand& command) {
  using Wish = ChatCommand::Kind;
  switch (command.kind) {
    case Wish::help:
      screen_.note(chat_help());
      break;
    case Wish::reset:
      dialogue_.conversation().clear();
      file_.clear();
      context_tokens_ = 0;
      break;
    case Wish::undo:
      require(dialogue_.conversation().undo(), ErrorKind::usage, "nobody has asked anything yet");
      context_tokens_.reset();
      break;
    case Wish::retry:
      dialogue_.ask_again();
      return true;
    case Wish::system:
      set_system(command.argument);
      break;
    case Wish::save:
      save(command.argument);
      break;
    case Wish::load:
      load(command.argument);
      break;
    case Wish::stats:
      tell_statistics();
      break;
    case Wish::exit:
      is_over_ = true;
      break;
  }
  return false;
}

void ChatRoom::answer(const ChatSignals& signals) {
  std::optional<Progress> progress;
  const bool silent = ::isatty(STDERR_FILENO) != 1;
  progress.emplace("prompt", silent, [](std::int64_t count) { return std::to_string(count); });
  const Turn turn = dialogue_.answer(
      {.on_prompt = [&](std::int64_t done, std::int64_t total) { progress->update(done, total); },
       .on_text =
           [&](const std::string& text) {
             progress.reset();
             screen_.answer(text);
           },
       .has_enough = [&] { return signals.is_interrupted() || signals.is_over(); }});
  progress.reset();
  screen_.end_answer();
  signals.forget();
  tell_end(turn);
  is_over_ = turn.stop_wanted;
  last_ = turn;
  const bool is_taken_back = turn.reason == StopReason::cancelled && turn.text.empty();
  if (!is_taken_back) context_tokens_ = turn.prompt_tokens + turn.answer_tokens;
  totals_ += turn;
  ++answers_;
}

void ChatRoom::tell_end(const Turn& turn) {
  if (turn.reason == StopReason::length) {
    screen_.note(turn.prompt_tokens + turn.answer_tokens >= dialogue_.context_tokens()
                     ? "(the context is full; /undo and /reset make room)"
                     : "(cut off by --predict)");
  } else if (turn.reason == StopReason::cancelled) {
    screen_.note(turn.text.empty() ? "(stopped; the question is taken back)" : "(stopped)");
  }
}

void ChatRoom::set_system(const std::string& text) {
  Conversation& conversation = dialogue_.conversation();
  if (!text.empty()) {
    conversation.set_system(checked(unquoted(text)));
    context_tokens_.reset();
    return;
  }
  screen_.note(conversation.has_system() ? conversation.system() : "there is no system prompt");
}

void ChatRoom::tell_size() const {
  screen_.note(fmt::format("{}: {}", file_, counted(dialogue_.conversation().size(), "message")));
}

void ChatRoom::save(const std::string& argument) {
  const std::string path = argument.empty() ? file_ : expand_home(unquoted(argument));
  require(!path.empty(), ErrorKind::usage, "/save FILE says where");
  require(dialogue_.conversation().size() > 0, ErrorKind::usage, "nobody has said anything yet");
  save_conversation(dialogue_.conversation(), path, path == file_);
  file_ = path;
  tell_size();
}

void ChatRoom::load(const std::string& argument) {
  require(!argument.empty(), ErrorKind::usage, "/load FILE says which");
  const std::string path = expand_home(unquoted(argument));
  Conversation loaded = read_conversation(path);
  loaded.add_defaults(defaults_);
  dialogue_.replace(std::move(loaded));
  context_tokens_.reset();
  file_ = path;
  tell_size();
}

std::string ChatRoom::totals_text() const {
  return turn_text(counted(answers_, "answer"), totals_);
}

void ChatRoom::tell_statistics() const {
  screen_.note(turn_text("last answer", last_));
  screen_.note(totals_text());
  const std::int64_t most = dialogue_.context_tokens();
  screen_.note(context_tokens_ ? fmt::format("context: {} of {} tokens", *context_tokens_, most)
                               : fmt::format("context: {} tokens; the next answer tells how many "
                                             "the conversation takes",
                                             most));
}

}  // namespace moesaic
