#include "launch/chat/chat_file.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"

namespace moesaic {

std::string expand_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return path.starts_with("~/") && home != nullptr ? home + path.substr(1) : path;
}

Conversation read_conversation(const std::string& path) {
  return Conversation(read_chat(Json::read_file(path)));
}

void save_conversation(const Conversation& conversation, const std::string& path,
                       bool may_replace) {
  std::error_code ignored;
  require(may_replace || !std::filesystem::exists(path, ignored), ErrorKind::usage,
          "{} is there already, and not from this conversation: it stays as it is", path);
  replace_file(path, conversation.json() + "\n");
}

}  // namespace moesaic
