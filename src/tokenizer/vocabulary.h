#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace moesaic {

/// Tokens and their ids, one to one. Ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Adds a token. Throws Error{file} naming `part` if another token has the id or the token has
  /// another id; adding the same again does nothing.
  void add(std::string_view token, std::int32_t id, const Json& part);

  [[nodiscard]] std::optional<std::int32_t> id(std::string_view token) const;
  /// nullptr for an id that no token has.
  [[nodiscard]] const std::string* token(std::int32_t id) const;
  [[nodiscard]] std::int64_t count() const noexcept { return std::ssize(ids_); }
  /// The largest id plus one.
  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(tokens_); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // by id; into the keys of ids_
};

}  // namespace moesaic
