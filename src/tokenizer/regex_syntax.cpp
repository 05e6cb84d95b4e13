#include "src/tokenizer/regex_syntax.h"

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

// Members of a class, without its brackets. Oniguruma counts the superscripts and fractions of
// Latin-1 as word characters, but not in a class.
constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

struct PosixClass {
  std::string_view name;
  std::string_view members;
};
constexpr std::array kPosixClasses{
    PosixClass{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    PosixClass{"alpha", R"(\p{Alphabetic})"},
    PosixClass{"ascii", R"(\x00-\x7f)"},
    PosixClass{"blank", R"(\p{Zs}\x09)"},
    PosixClass{"digit", R"(\p{Nd})"},
    PosixClass{"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    PosixClass{"lower", R"(\p{Lowercase})"},
    PosixClass{"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    PosixClass{"punct", R"(\p{P}\p{S})"},
    PosixClass{"space", R"(\s)"},
    PosixClass{"upper", R"(\p{Uppercase})"},
    PosixClass{"word", kWordInClass},
    PosixClass{"xdigit", kHexDigit},
    PosixClass{"cntrl", R"(\p{Cc})"},
};

/// Categories by the names that PCRE2 does not know.
struct Category {
  std::string_view name;
  std::string_view short_name;
};
constexpr std::array kCategories{
    Category{"letter", "L"},
    Category{"casedletter", "L&"},
    Category{"uppercaseletter", "Lu"},
    Category{"lowercaseletter", "Ll"},
    Category{"titlecaseletter", "Lt"},
    Category{"modifierletter", "Lm"},
    Category{"otherletter", "Lo"},
    Category{"mark", "M"},
    Category{"combiningmark", "M"},
    Category{"nonspacingmark", "Mn"},
    Category{"spacingmark", "Mc"},
    Category{"enclosingmark", "Me"},
    Category{"number", "N"},
    Category{"decimalnumber", "Nd"},
    Category{"letternumber", "Nl"},
    Category{"othernumber", "No"},
    Category{"punctuation", "P"},
    Category{"connectorpunctuation", "Pc"},
    Category{"dashpunctuation", "Pd"},
    Category{"openpunctuation", "Ps"},
    Category{"closepunctuation", "Pe"},
    Category{"initialpunctuation", "Pi"},
    Category{"finalpunctuation", "Pf"},
    Category{"otherpunctuation", "Po"},
    Category{"symbol", "S"},
    Category{"mathsymbol", "Sm"},
    Category{"currencysymbol", "Sc"},
    Category{"modifiersymbol", "Sk"},
    Category{"othersymbol", "So"},
    Category{"separator", "Z"},
    Category{"spaceseparator", "Zs"},
    Category{"lineseparator", "Zl"},
    Category{"paragraphseparator", "Zp"},
    Category{"other", "C"},
    Category{"control", "Cc"},
    Category{"format", "Cf"},
    Category{"unassigned", "Cn"},
    Category{"privateuse", "Co"},
    Category{"surrogate", "Cs"},
};

bool is_script(const std::string& name) {
  const std::string pattern = "\\p{sc:" + name + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                         pattern.size(), PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

/// In names of properties case, spaces, hyphens and underscores do not count.
std::string plain_name(const std::string& name) {
  std::string letters;
  for (const char letter : name) {
    if (letter == ' ' || letter == '-' || letter == '_') continue;
    letters += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return letters;
}

/// Members of the property that has the name of a POSIX class, by its plain_name(); empty for
/// others. `word`: of that one.
std::string_view posix_property(std::string_view letters, std::string_view word) {
  if (letters == "word") return word;
  if (letters == "punct") return R"(\p{P})";  // as a POSIX class it has symbols too
  if (letters == "assigned") return R"(\P{Cn})";
  const auto* const found = std::ranges::find(kPosixClasses, letters, &PosixClass::name);
  return found == kPosixClasses.end() ? "" : found->members;
}

/// A property's name as PCRE2 has it, which takes the bare one of a script for the script with its
/// extensions.
std::string property(const std::string& name) {
  const std::string letters = plain_name(name);
  for (const Category& category : kCategories) {
    if (letters == category.name) return std::string(category.short_name);
  }
  return is_script(name) ? "sc:" + name : name;
}

std::string in_class(std::string_view members, bool negated = false) {
  return std::string(negated ? "[^" : "[") + std::string(members) + "]";
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    std::string out;
    std::size_t item = 0;             // where that begins which a quantifier would repeat
    std::vector<std::size_t> groups;  // where those begin that are open
    while (at_ < pattern_.size()) {
      const char next = pattern_[at_];
      if (next == '{' && repeat_interval(out, item)) continue;
      const bool is_quantifier = next == '*' || next == '+' || next == '?';
      if (!is_quantifier) item = out.size();
      if (next == '(') groups.push_back(out.size());
      if (next == ')' && !groups.empty()) {
        item = groups.back();
        groups.pop_back();
      }
      if (next == '\\') {
        out += escape_outside_class();
      } else if (next == '[') {
        out += character_class();
      } else if (pattern_.substr(at_, 2) == "(?") {
        out += group_options();
      } else {
        out += pattern_[at_++];
      }
    }
    return out;
  }

 private:
  /// One side of `&&`: plain members and classes of their own, all of which it unites.
  struct Union {
    std::string members;
    std::vector<std::string> classes;

    [[nodiscard]] std::string text() const {
      if (classes.empty()) return in_class(members);
      std::string alternatives = members.empty() ? "" : in_class(members) + "|";
      for (const std::string& one : classes) alternatives += one + "|";
      alternatives.pop_back();
      return "(?:" + alternatives + ")";
    }
  };

  /// At {N}, {N,M}, {N,} or {,M}: repeats what of `out` begins at `item`. A + behind it repeats
  /// that again, where PCRE2 would give nothing back. False if it is none.
  bool repeat_interval(std::string& out, std::size_t item) {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const bool is_interval = inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                             std::ranges::count(inside, ',') <= 1 && inside.size() > 0 &&
                             inside != ",";
    if (!is_interval) return false;
    at_ = end + 1;
    const bool is_repeated = take("+");
    if (is_repeated) out.insert(item, "(?:");
    out += fmt::format("{{{}{}}}", inside.front() == ',' ? "0" : "", inside);
    if (is_repeated) out += ")+";
    return true;
  }

  bool take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  std::string_view take_escape() {
    const std::string_view escape = pattern_.substr(at_, 2);
    at_ += escape.size();
    return escape;
  }

  /// Escapes that mean one set or character wherever they stand.
  std::string common_escape(std::string_view escape) {
    if (escape == "\\v") return R"(\x0b)";
    if (escape == "\\u" && at_ + 4 <= pattern_.size()) {
      at_ += 4;
      return "\\x{" + std::string(pattern_.substr(at_ - 4, 4)) + "}";
    }
    if (const auto one = take_property(escape)) {
      return (one->negated ? "\\P{" : "\\p{") + property(one->name) + "}";
    }
    return std::string(escape);
  }

  struct Property {
    std::string name;
    bool negated = false;
  };

  /// At the braces behind \p or \P: takes them. Nothing for another escape.
  std::optional<Property> take_property(std::string_view escape) {
    if ((escape != "\\p" && escape != "\\P") || !take("{")) return std::nullopt;
    const bool negated = take("^") != (escape == "\\P");
    const std::size_t end = pattern_.find('}', at_);
    require(end != std::string_view::npos, ErrorKind::file, "{}: \\p{{ without }} in \"{}\"",
            where_, pattern_);
    const std::string name(pattern_.substr(at_, end - at_));
    at_ = end + 1;
    return Property{name, negated};
  }

  /// A class in place of a property that PCRE2 has not: of a POSIX class's name. Nothing, and
  /// nothing is taken, for others.
  struct Members {
    std::string_view members;
    bool negated = false;
  };
  std::optional<Members> posix_members(std::string_view escape, std::string_view word) {
    const std::size_t start = at_;
    const auto one = take_property(escape);
    const std::string_view members = one ? posix_property(plain_name(one->name), word) : "";
    if (!members.empty()) return Members{members, one->negated};
    at_ = start;
    return std::nullopt;
  }

  std::string escape_outside_class() {
    const std::string_view escape = take_escape();
    const std::string word = in_class(kWord);
    if (escape == "\\w" || escape == "\\W") return in_class(kWord, escape == "\\W");
    if (escape == "\\h" || escape == "\\H") return in_class(kHexDigit, escape == "\\H");
    if (escape == "\\b") {
      return "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
    }
    if (escape == "\\B") {
      return "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
    }
    if (const auto posix = posix_members(escape, kWord)) {
      return in_class(posix->members, posix->negated);
    }
    return common_escape(escape);
  }

  void escape_in_class(Union& out) {
    const std::string_view escape = take_escape();
    if (escape == "\\w") {
      out.members += kWordInClass;
    } else if (escape == "\\h") {
      out.members += kHexDigit;
    } else if (escape == "\\W" || escape == "\\H") {
      out.classes.push_back(in_class(escape == "\\W" ? kWordInClass : kHexDigit, true));
    } else if (const auto posix = posix_members(escape, kWordInClass)) {
      if (posix->negated) {
        out.classes.push_back(in_class(posix->members, true));
      } else {
        out.members += posix->members;
      }
    } else {
      out.members += common_escape(escape);
    }
  }

  /// At `[:name:]` or `[:^name:]`; false if it is none.
  bool posix_class(Union& out) {
    const std::size_t start = at_;
    if (!take("[:")) return false;
    const bool negated = take("^");
    for (const PosixClass& posix : kPosixClasses) {
      if (!take(std::string(posix.name) + ":]")) continue;
      if (negated) {
        out.classes.push_back(in_class(posix.members, true));
      } else {
        out.members += posix.members;
      }
      return true;
    }
    at_ = start;
    return false;
  }

  std::string character_class() {
    require(++depth_ <= 16, ErrorKind::file, "{}: classes nested too deep in \"{}\"", where_,
            pattern_);
    ++at_;
    const bool negated = take("^");
    std::vector<Union> sides(1);
    if (take("]")) sides.back().members += "\\]";
    while (!take("]")) {
      require(at_ < pattern_.size(), ErrorKind::file, "{}: class without end in \"{}\"", where_,
              pattern_);
      Union& side = sides.back();
      if (pattern_[at_] == '\\') {
        escape_in_class(side);
      } else if (take("&&")) {
        sides.emplace_back();
      } else if (pattern_[at_] == '[') {
        if (!posix_class(side)) side.classes.push_back(character_class());
      } else {
        side.members += pattern_[at_++];
      }
    }
    --depth_;
    return class_text(sides, negated);
  }

  static std::string class_text(const std::vector<Union>& sides, bool negated) {
    if (sides.size() == 1 && sides[0].classes.empty()) return in_class(sides[0].members, negated);
    std::string all;
    for (std::size_t i = 0; i + 1 < sides.size(); ++i) all += "(?=" + sides[i].text() + ")";
    all += sides.back().text();
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  /// At "(?": copies it with the option letters that may follow.
  std::string group_options() {
    at_ += 2;
    std::string out = "(?";
    while (at_ < pattern_.size() &&
           (std::isalpha(static_cast<unsigned char>(pattern_[at_])) != 0 || pattern_[at_] == '-')) {
      out += pattern_[at_] == 'm' ? 's' : pattern_[at_];
      ++at_;
    }
    return out;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace moesaic
