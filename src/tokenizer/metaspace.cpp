#include "src/tokenizer/metaspace.h"

#include <string>

#include "base/error.h"
#include "src/tokenizer/json_parts.h"

namespace moesaic {
namespace {

PrependScheme prepend_scheme(const Json& name) {
  const std::string text = name.as_string();
  if (text == "first") return PrependScheme::first;
  if (text == "never") return PrependScheme::never;
  if (text == "always") return PrependScheme::always;
  fail(ErrorKind::file, "{} is \"{}\"; supported: first, never and always", name.where(), text);
}

}  // namespace

MetaspaceOptions metaspace_options(const Json& part) {
  MetaspaceOptions options;
  options.replacement = single_character(part.at("replacement"));
  options.split = bool_or(part, "split", true);
  const auto scheme = part.find("prepend_scheme");
  if (scheme) options.prepend_scheme = prepend_scheme(*scheme);
  if (!bool_or(part, "add_prefix_space", true)) {
    require(!scheme || options.prepend_scheme == PrependScheme::never, ErrorKind::file,
            "{}: add_prefix_space is false, but prepend_scheme is \"{}\"", part.where(),
            scheme ? scheme->as_string() : "");
    options.prepend_scheme = PrependScheme::never;
  }
  return options;
}

}  // namespace moesaic
