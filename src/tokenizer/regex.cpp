#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "base/error.h"
#include "src/tokenizer/regex_syntax.h"
#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

namespace {

constexpr std::size_t kFirstStackBytes = std::size_t{64} << 10;
constexpr std::size_t kMostStackBytes = std::size_t{64} << 20;

PCRE2_SPTR code_units(std::string_view text) {
  // PCRE2 refuses a null pointer even for an empty text.
  return reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// What a search needs beside the code; used by one thread at a time.
class Matcher {
 public:
  /// `where` the pattern stands; must outlive this.
  Matcher(const pcre2_code* code, const std::string& where)
      : code_(code),
        where_(where),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    require(data_ && context_, ErrorKind::resource, "no memory for a pattern search");
  }

  std::optional<Span> find(std::string_view text, std::size_t from) {
    int found = match(text, from);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
      stack_.reset(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr));
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      found = match(text, from);
    }
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    require(found > 0, ErrorKind::file, "{}: the pattern fails on a text of {} bytes: {}", where_,
            text.size(), message_of(found));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
    return Span{ends[0], std::max(ends[0], ends[1])};  // \K can put the start behind the end
  }

 private:
  int match(std::string_view text, std::size_t from) {
    return pcre2_match(code_, code_units(text), text.size(), from, PCRE2_NO_UTF_CHECK, data_.get(),
                       context_.get());
  }

  template <auto free>
  struct Free {
    template <typename T>
    void operator()(T* object) const noexcept {
      free(object);
    }
  };
  const pcre2_code* code_;
  const std::string& where_;
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data_;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_;  // the default one is small
};

}  // namespace

/// A literal text, or a pattern and what its last search used, which the next one takes over.
struct Regex::Code {
  std::string literal;
  pcre2_code* code = nullptr;
  std::string where;  // the pattern stands
  mutable std::atomic<Matcher*> spare = nullptr;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    delete spare.load();
    pcre2_code_free(code);
  }

  [[nodiscard]] std::unique_ptr<Matcher> take_matcher() const {
    std::unique_ptr<Matcher> matcher(spare.exchange(nullptr));
    return matcher ? std::move(matcher) : std::make_unique<Matcher>(code, where);
  }
  void give_back(std::unique_ptr<Matcher> matcher) const {
    delete spare.exchange(matcher.release());
  }
};

Regex Regex::compile(std::string_view pattern, const std::string& where) {
  const std::string translated = pcre2_pattern(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->where = where;
  code->code = pcre2_compile(code_units(translated), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, nullptr);
  require(code->code != nullptr, ErrorKind::file, "{}: not a pattern: {} at byte {} of \"{}\"",
          where, message_of(error), offset, translated);
  // Without a JIT the interpreter runs the same pattern.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Regex Regex::compile_whole(std::string_view pattern, const std::string& where) {
  return compile("\\A(?:" + std::string(pattern) + ")\\z", where);
}

Regex Regex::literal(std::string_view text) {
  if (text.empty()) return compile("", "empty pattern");
  auto code = std::make_shared<Code>();
  code->literal = text;
  return Regex(std::move(code));
}

std::vector<Span> Regex::find_all(std::string_view text) const {
  return code_->code != nullptr ? find_pattern(text) : find_literal(text);
}

std::vector<Span> Regex::find_literal(std::string_view text) const {
  std::vector<Span> matches;
  const std::string& wanted = code_->literal;
  for (std::size_t at = text.find(wanted); at != std::string_view::npos;) {
    matches.push_back({at, at + wanted.size()});
    at = text.find(wanted, at + wanted.size());
  }
  return matches;
}

std::vector<Span> Regex::find_pattern(std::string_view text) const {
  const std::optional<std::string> older = with_stand_ins(text);
  if (older) text = *older;
  std::vector<Span> matches;
  std::unique_ptr<Matcher> matcher = code_->take_matcher();
  for (std::size_t from = 0; from <= text.size();) {
    const std::optional<Span> match = matcher->find(text, from);
    if (!match) break;
    if (match->size() == 0 && !matches.empty() && matches.back().end == match->end) {
      from += from < text.size() ? utf8_length(text[from]) : 1;
      continue;
    }
    matches.push_back(*match);
    from = match->end;
  }
  code_->give_back(std::move(matcher));
  return matches;
}

std::string Regex::replace(std::string_view text, std::string_view content) const {
  std::string out;
  std::size_t copied = 0;
  for (const Span& match : find_all(text)) {
    out.append(text.substr(copied, match.begin - copied)).append(content);
    copied = match.end;
  }
  return out.append(text.substr(copied));
}

}  // namespace moesaic
