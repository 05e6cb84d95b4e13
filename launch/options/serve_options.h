#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moesaic {

/// What `moesaic serve` takes besides the options of all verbs that run a model.
struct ServeOptions {
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  std::optional<std::string> api_key_file;
  std::string model_name;  // empty: the directory's
  std::int64_t max_waiting = 256;
};

}  // namespace moesaic
