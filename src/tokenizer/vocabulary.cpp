#include "src/tokenizer/vocabulary.h"

#include "base/error.h"

namespace moesaic {

void Vocabulary::add(std::string_view token, std::int32_t id, const Json& part) {
  const auto [entry, is_new] = ids_.try_emplace(std::string(token), id);
  if (entry->second != id) {
    fail(ErrorKind::file, "{}: token \"{}\" has id {} here and id {} before", part.where(), token,
         id, entry->second);
  }
  if (!is_new) return;
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1, nullptr);
  if (tokens_[index] != nullptr) {
    fail(ErrorKind::file, "{}: id {} is given to \"{}\" and to \"{}\"", part.where(), id,
         *tokens_[index], token);
  }
  tokens_[index] = &entry->first;
}

std::optional<std::int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token(std::int32_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<std::size_t>(id)] : nullptr;
}

}  // namespace moesaic
