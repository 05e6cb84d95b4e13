#include "src/jinja/globals.h"

#include <array>
#include <ctime>

#include "src/jinja/operators.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {
namespace {

Value range(Run& run, const Arguments& arguments) {
  constexpr std::int64_t kMaxRange = 100000;  // Jinja's sandbox has the same
  const auto bound = bind(arguments, "range()", {"start", "stop", "step"}, 1);
  const bool from_zero = bound[1] == nullptr;
  const std::int64_t start = from_zero ? 0 : integer_of(*bound[0], "the start of a range");
  const std::int64_t stop = integer_of(*bound[from_zero ? 0 : 1], "the end of a range");
  const std::int64_t step = bound[2] == nullptr ? 1 : integer_of(*bound[2], "the step of a range");
  if (step == 0) refuse("range() arg 3 must not be zero");
  Sequence sequence;
  sequence.kind = SequenceKind::range;
  sequence.ends = {start, stop, step};
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (std::ssize(sequence.items) == kMaxRange) refuse("Range too big");
    sequence.items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  sequence.extent.values += std::ssize(sequence.items);
  run.charge(sequence.items.size() * sizeof(Value));
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

/// What Python's dict() makes of its arguments.
Dict members_of(const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) refuse("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.dict() != nullptr) {
      dict = *from.dict();
    } else {
      for (const Value& entry : items_of(from)) {
        const std::vector<Value> pair = items_of(entry);
        if (pair.size() != 2) refuse("dict update sequence element must have length 2");
        dict.set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value(name), value);
  return dict;
}

Value make_dict_value(Run&, const Arguments& arguments) {
  return make_dict(members_of(arguments));
}

Value make_namespace(Run& run, const Arguments& arguments) {
  return run.make_namespace(members_of(arguments));
}

Value raise_exception(Run&, const Arguments& arguments) {
  const auto bound = bind(arguments, "raise_exception()", {"message"}, 1);
  refuse("{}", to_text(*bound[0]));
}

Value strftime_now(Run&, const Arguments& arguments) {
  const auto bound = bind(arguments, "strftime_now()", {"format"}, 1);
  const std::string& format = text_of(*bound[0], "the format of strftime_now()");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  if (format.empty()) return Value("");
  constexpr std::size_t kMaxBytes = 4096;
  std::array<char, kMaxBytes> text{};
  const std::size_t bytes = std::strftime(text.data(), text.size(), format.c_str(), &local);
  return Value(std::string(text.data(), bytes));
}

}  // namespace

void assign_globals(Run& run) {
  using GlobalFunction = Value (*)(Run&, const Arguments&);
  constexpr std::pair<std::string_view, GlobalFunction> kFunctions[] = {
      {"range", range},
      {"dict", make_dict_value},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now}};
  for (const auto& [name, call] : kFunctions) {
    run.assign(name, Value(std::make_shared<const Callable>(Callable{std::string(name), call})));
  }
}

}  // namespace moesaic::jinja
