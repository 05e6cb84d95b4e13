#include "launch/chat/chat_file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
  const std::string text = conversation.json() + "\n";
  const std::string part = path + ".part";
  {
    const OutputFile file(part, OutputFile::Mode::create, path);
    file.write_at(0, std::as_bytes(std::span(text)));
  }
  const bool renamed = std::rename(part.c_str(), path.c_str()) == 0;
  require(renamed, ErrorKind::resource, "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace moesaic
