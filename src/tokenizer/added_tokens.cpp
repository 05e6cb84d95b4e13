#include "src/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "src/tokenizer/json_parts.h"
#include "src/tokenizer/regex_syntax.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

std::uint64_t edge(std::uint64_t node, unsigned char byte) {
  return (node << 8) | byte;
}

std::size_t space_begin(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t previous = previous_character(text, at);
    std::size_t next = previous;
    if (!is_white_space(next_code_point(text, next))) break;
    at = previous;
  }
  return at;
}

std::size_t space_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_white_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

AddedToken read_added_token(const Json& entry, bool special) {
  return {.content = entry.at("content").as_string(),
          .single_word = bool_or(entry, "single_word", false),
          .lstrip = bool_or(entry, "lstrip", false),
          .rstrip = bool_or(entry, "rstrip", false),
          .normalized = bool_or(entry, "normalized", !special),
          .special = special};
}

std::vector<AddedToken> read_added_tokens(const Json& array) {
  require(array.is_array(), ErrorKind::file, "{}: expected an array", array.where());
  std::vector<AddedToken> tokens;
  array.for_each([&](const std::string&, const Json& entry) {
    const std::int32_t id = token_id_of(entry.at("id"));
    tokens.push_back(read_added_token(entry, bool_or(entry, "special", false)));
    tokens.back().id = id;
  });
  return tokens;
}

AddedTokenFinder::AddedTokenFinder()
    : word_(Regex::compile("[" + std::string(kRustWordMembers) + "]", "word character")) {}

void AddedTokenFinder::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  std::uint32_t node = 0;
  for (std::size_t at = 0; at < content.size(); ++at) {
    const auto next = static_cast<std::uint32_t>(token_of_node_.size());
    const auto [found, is_new] = edges_.try_emplace(edge(node, byte_at(content, at)), next);
    if (is_new) token_of_node_.push_back(-1);
    node = found->second;
  }
  starts_[byte_at(content, 0)] = true;
  token_of_node_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Found AddedTokenFinder::longest_at(std::string_view text,
                                                     std::size_t begin) const {
  Found longest;
  std::uint32_t node = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const auto next = edges_.find(edge(node, byte_at(text, at)));
    if (next == edges_.end()) break;
    node = next->second;
    const std::int32_t token = token_of_node_[node];
    if (token >= 0) longest = {at + 1, &tokens_[static_cast<std::size_t>(token)]};
  }
  return longest;
}

bool AddedTokenFinder::touches_word(std::string_view text, Span match) const {
  const auto is_word = [&](std::size_t at) {
    return !word_.find_all(text.substr(at, utf8_length(text[at]))).empty();
  };
  return (match.begin > 0 && is_word(previous_character(text, match.begin))) ||
         (match.end < text.size() && is_word(match.end));
}

std::vector<Segment> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t covered = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Found found = starts_[byte_at(text, at)] ? longest_at(text, at) : Found{};
    if (found.token == nullptr) {
      ++at;
      continue;
    }
    Span match{at, found.end};
    at = match.end;  // even where the match is dropped or takes more, the search goes on here
    if (found.token->single_word && touches_word(text, match)) continue;
    if (found.token->lstrip) match.begin = std::max(space_begin(text, match.begin), covered);
    if (found.token->rstrip) match.end = space_end(text, match.end);
    if (match.begin >= match.end) continue;  // white space that the token before has taken
    if (covered < match.begin) segments.push_back({Span{covered, match.begin}.of(text), {}});
    segments.push_back({match.of(text), found.token->id});
    covered = match.end;
  }
  if (covered < text.size()) segments.push_back({text.substr(covered), {}});
  return segments;
}

}  // namespace moesaic
