#include "src/tokenizer/aligned_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

/// Full decompositions, combining marks in canonical order.
std::vector<NewCharacter> decomposed(std::string_view text, bool compatibly) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibly ? UTF8PROC_COMPAT : 0));
  std::vector<NewCharacter> characters;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    std::array<utf8proc_int32_t, 32> parts{};
    int last_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &last_class);
    if (count <= 0 || count > std::ssize(parts)) {
      characters.push_back({c, 1});
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      characters.push_back(
          {static_cast<char32_t>(parts[static_cast<std::size_t>(i)]), i == 0 ? 1 : 0});
    }
  }
  const auto is_mark = [](const NewCharacter& c) { return combining_class(c.code_point) != 0; };
  for (auto mark = std::find_if(characters.begin(), characters.end(), is_mark);
       mark != characters.end();) {
    const auto end = std::find_if_not(mark, characters.end(), is_mark);
    std::stable_sort(mark, end, [](const NewCharacter& a, const NewCharacter& b) {
      return combining_class(a.code_point) < combining_class(b.code_point);
    });
    mark = std::find_if(end, characters.end(), is_mark);
  }
  return characters;
}

/// The character that the pair composes to; 0 if there is none.
char32_t composed(char32_t first, char32_t second) {
  if (second < 0x300) return 0;
  std::array<utf8proc_int32_t, 2> pair = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second)};
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return count == 1 ? static_cast<char32_t>(pair[0]) : 0;
}

std::vector<NewCharacter> recomposed(const std::vector<NewCharacter>& characters) {
  std::vector<NewCharacter> made;
  std::ptrdiff_t starter = -1;  // in `made`
  int last_class = -1;          // of the mark behind the starter; -1 if it stands next to it
  for (const NewCharacter& character : characters) {
    const int its_class = combining_class(character.code_point);
    if (starter >= 0 && last_class < its_class) {
      NewCharacter& before = made[static_cast<std::size_t>(starter)];
      if (const char32_t whole = composed(before.code_point, character.code_point)) {
        before = {whole, before.replaces + character.replaces};
        continue;
      }
    }
    made.push_back(character);
    if (its_class == 0) {
      starter = std::ssize(made) - 1;
      last_class = -1;
    } else {
      last_class = its_class;
    }
  }
  return made;
}

}  // namespace

std::vector<NewCharacter> normalized_characters(std::string_view text, NormalForm form) {
  const bool compatibly = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<NewCharacter> characters = decomposed(text, compatibly);
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  return composes ? recomposed(characters) : characters;
}

}  // namespace moesaic
