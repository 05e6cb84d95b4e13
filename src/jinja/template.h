#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "src/jinja/run.h"
#include "src/jinja/value.h"

namespace moesaic::jinja {

/// What a template made of some variables.
struct Rendered {
  std::string text;
  std::vector<Generated> generated;  ///< what generation blocks made, in order
};

/// A Jinja template as Hugging Face's chat templates are run: trim_blocks and lstrip_blocks, loop
/// controls, generation blocks, no changes of values, no inheritance, imports or includes.
/// docs/chat.md lists what is known. Copies share what was parsed; safe to use from several
/// threads.
class Template {
 public:
  /// Throws Error{file} with `name` and the line for what is wrong or not supported.
  static Template parse(std::string_view source, std::string name);

  /// Throws Error{file} with the name, the line and what is wrong, also for raise_exception (whose
  /// text it is then).
  [[nodiscard]] Rendered render(const Dict& variables, const Limits& limits = {}) const;
  /// Whether it has generation blocks.
  [[nodiscard]] bool has_generation() const;

 private:
  struct Parts;
  explicit Template(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

/// The value of some JSON, members in the order of the file.
[[nodiscard]] Value value_of(const Json& json);

}  // namespace moesaic::jinja
