#include "src/train/sample_format.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "src/jinja/template.h"

namespace moesaic {
namespace {

using jinja::Dict;
using jinja::Value;

/// A format, and a member that no other has; completion_messages has that of completion.
struct FormatRow {
  SampleFormat format;
  std::string_view member;
};

constexpr std::array kFormats = {
    FormatRow{SampleFormat::tokens, "input_ids"},
    FormatRow{SampleFormat::messages, "messages"},
    FormatRow{SampleFormat::alpaca, "instruction"},
    FormatRow{SampleFormat::sharegpt, "conversations"},
    FormatRow{SampleFormat::completion, "completion"},
    FormatRow{SampleFormat::text, "text"},
};

/// Turns of a conversation in the making.
class Turns {
 public:
  void add(std::string_view role, std::string text) {
    Dict message;
    message.set(Value("role"), Value(role));
    message.set(Value("content"), Value(std::move(text)));
    messages_.push_back(jinja::make_dict(std::move(message)));
  }
  /// A turn that is a message already.
  void add(Value message) { messages_.push_back(std::move(message)); }
  void add_system(const Json& line) {
    const auto system = line.find("system");
    if (system && !system->as_string_view().empty()) add("system", system->as_string());
  }
  [[nodiscard]] Chat chat() && {
    Chat chat;
    chat.messages = jinja::make_sequence(std::move(messages_));
    return chat;
  }

 private:
  std::vector<Value> messages_;
};

Chat read_alpaca(const Json& line) {
  Turns turns;
  turns.add_system(line);
  if (const auto history = line.find("history")) {
    require(history->is_array(), ErrorKind::file,
            "{}: expected a list of pairs of a user's and an assistant's text", history->where());
    history->for_each([&](const std::string&, const Json& pair) {
      require(pair.is_array() && pair.size() == 2, ErrorKind::file,
              "{}: expected a pair of a user's and an assistant's text", pair.where());
      turns.add("user", pair.at(std::int64_t{0}).as_string());
      turns.add("assistant", pair.at(std::int64_t{1}).as_string());
    });
  }
  std::string request = line.at("instruction").as_string();
  const auto input = line.find("input");
  if (input && !input->as_string_view().empty()) request += "\n" + input->as_string();
  turns.add("user", std::move(request));
  turns.add("assistant", line.at("output").as_string());
  return std::move(turns).chat();
}

std::string_view role_of(const Json& from) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kRoles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"system", "system"},
       {"observation", "tool"}}};
  for (const auto& [name, role] : kRoles) {
    if (from.as_string_view() == name) return role;
  }
  fail(ErrorKind::file,
       "{}: \"{}\" speaks; known are human, gpt, system and observation (calls of functions: use "
       "the format messages)",
       from.where(), from.as_string());
}

/// A list, or a string that holds one as JSON.
Value read_tools(const Json& tools) {
  const Json list = tools.is_string() ? Json::parse(tools.as_string_view(), tools.where()) : tools;
  require(list.is_array(), ErrorKind::file, "{}: expected a list of tools", tools.where());
  return jinja::value_of(list);
}

Chat read_sharegpt(const Json& line) {
  Turns turns;
  turns.add_system(line);
  const Json conversations = line.at("conversations");
  require(conversations.is_array() && conversations.size() > 0, ErrorKind::file,
          "{}: expected a list of at least one turn", conversations.where());
  conversations.for_each([&](const std::string&, const Json& turn) {
    if (turn.contains("role") && !turn.contains("from")) {  // as many files say
      return turns.add(jinja::value_of(turn));
    }
    turns.add(role_of(turn.at("from")), turn.at("value").as_string());
  });
  Chat chat = std::move(turns).chat();
  const auto tools = line.find("tools");
  const bool is_empty = !tools || (tools->is_string() && tools->as_string_view().empty());
  if (!is_empty) chat.tools = read_tools(*tools);
  return chat;
}

bool has_lists(const Json& line) {
  return line.at("prompt").is_array() && line.at("completion").is_array();
}

void require_alike(const Json& line) {
  const Json prompt = line.at("prompt");
  const Json completion = line.at("completion");
  const bool are_alike = (prompt.is_array() && completion.is_array()) ||
                         (prompt.is_string() && completion.is_string());
  require(are_alike, ErrorKind::file,
          "{}: expected prompt and completion to be two texts, or two lists of messages",
          line.where());
}

TrainedChat read_completion(const Json& line) {
  require_alike(line);
  require(has_lists(line), ErrorKind::file,
          "{}: prompt and completion are texts: the format of such lines is completion, and all "
          "lines of a file are of one format",
          line.where());
  std::vector<Value> messages = read_messages(line.at("prompt"));
  const std::size_t first = messages.size();
  const std::vector<Value> completion = read_messages(line.at("completion"));
  require(std::ranges::any_of(completion, is_assistant), ErrorKind::file,
          "{}: no message of role assistant, and so nothing to train",
          line.at("completion").where());
  messages.insert(messages.end(), completion.begin(), completion.end());
  return {.chat = read_chat(line, std::move(messages)), .first = first};
}

}  // namespace

SampleFormat detect_sample_format(const Json& line) {
  require(line.is_object(), ErrorKind::file, "{}: expected an object", line.where());
  for (const FormatRow& row : kFormats) {
    if (!line.contains(row.member)) continue;
    const bool are_messages = row.format == SampleFormat::completion && has_lists(line);
    return are_messages ? SampleFormat::completion_messages : row.format;
  }
  fail(ErrorKind::file,
       "{}: the format of the data cannot be told: there is none of input_ids, messages, "
       "instruction, conversations, completion and text",
       line.where());
}

TrainedChat read_conversation(const Json& line, SampleFormat format) {
  if (format == SampleFormat::alpaca) return {.chat = read_alpaca(line)};
  if (format == SampleFormat::sharegpt) return {.chat = read_sharegpt(line)};
  TrainedChat trained = format == SampleFormat::completion_messages
                            ? read_completion(line)
                            : TrainedChat{.chat = read_chat(line)};
  trained.chat.add_generation_prompt = false;
  return trained;
}

void require_texts(const Json& line) {
  require_alike(line);
  require(!has_lists(line), ErrorKind::file,
          "{}: prompt and completion are lists of messages: the format of such lines is "
          "completion-messages, and all lines of a file are of one format",
          line.where());
}

}  // namespace moesaic
