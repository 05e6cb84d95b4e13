#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace moesaic::jinja {

class Dict;
class Object;
class Run;
class Value;
struct Arguments;
struct Callable;
struct Sequence;

struct None {};

/// What a name or member that is not there gives, and a method that would change its object: prints
/// as nothing, is false and empty; anything else that is done with it throws `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

/// How large a value is when all that it shares is counted again and again, as what prints or
/// compares it will. Containers that are too deep or too large are refused when they are made.
struct Extent {
  int depth = 0;  ///< 0 for what is no container
  std::int64_t values = 1;

  /// Takes in a member. Throws if that is too much.
  void add(const Extent& member);
};

/// A value of a template, as Python has it. Cheap to copy: texts and containers are shared and
/// never change (namespaces alone do).
class Value {
 public:
  using Text = std::shared_ptr<const std::string>;  // UTF-8

  Value() = default;  ///< None
  explicit Value(std::same_as<bool> auto value) : data_(value) {}
  explicit Value(std::same_as<std::int64_t> auto value) : data_(value) {}
  explicit Value(std::same_as<double> auto value) : data_(value) {}
  explicit Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(std::shared_ptr<const Sequence> items) : data_(std::move(items)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}

  static Value undefined(std::string why);
  /// A name that is not there.
  static Value unknown(std::string_view name);

  [[nodiscard]] bool is_none() const { return is<None>(); }
  [[nodiscard]] bool is_undefined() const { return is<Undefined>(); }
  [[nodiscard]] bool is_text() const { return is<Text>(); }
  [[nodiscard]] bool is_number() const { return is<std::int64_t>() || is<double>() || is<bool>(); }

  /// nullptr, or what this value is.
  [[nodiscard]] const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  [[nodiscard]] const bool* boolean() const { return std::get_if<bool>(&data_); }
  [[nodiscard]] const double* real() const { return std::get_if<double>(&data_); }
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] const Sequence* sequence() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] const Callable* callable() const;
  [[nodiscard]] Object* object() const;
  /// An integer or a bool, which counts as 0 or 1.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// An integer, a bool or a float.
  [[nodiscard]] std::optional<double> number() const;
  /// Whether it is an integer proper.
  [[nodiscard]] bool is_integer() const { return is<std::int64_t>(); }

  /// Python's name of the type: "str", "list", "NoneType".
  [[nodiscard]] std::string_view type_name() const;
  [[nodiscard]] Extent extent() const;
  /// Python's truth.
  [[nodiscard]] bool truth() const;

 private:
  template <typename Kind>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<Kind>(data_);
  }
  std::variant<None, Undefined, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Callable>,
               std::shared_ptr<Object>>
      data_;
};

enum class SequenceKind { list, tuple, generator, range, keys, values, items };

/// What a range was made of, or a slice of one.
struct RangeEnds {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
};

/// A list or what else Python iterates over by position.
struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  Extent extent{1, 1};
  RangeEnds ends;                 ///< of a range
  mutable std::size_t taken = 0;  ///< of a generator: how many items are gone
};

/// Throws if it is too deep or too large.
[[nodiscard]] Value make_sequence(std::vector<Value> items, SequenceKind kind = SequenceKind::list);

/// Keys and values in the order in which the keys came first.
class Dict {
 public:
  /// Throws for keys that Python cannot hash, and where it grows too deep or too large.
  void set(const Value& key, Value value);
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  [[nodiscard]] const Extent& extent() const { return extent_; }

 private:
  [[nodiscard]] std::ptrdiff_t position(const Value& key) const;
  [[nodiscard]] std::ptrdiff_t position(std::string_view key) const;
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // of text keys, once there are many
  Extent extent_{1, 1};
};

[[nodiscard]] Value make_dict(Dict dict);

/// A value with named members that are no dict: a namespace, a loop.
class Object {
 public:
  virtual ~Object() = default;
  /// nullopt if it has no such member.
  [[nodiscard]] virtual std::optional<Value> member(std::string_view name) const = 0;
  /// Whether it could be set; only namespaces can.
  virtual bool set_member(std::string_view name, Value value);
  [[nodiscard]] virtual std::string_view type_name() const = 0;
  /// All members, of a namespace; nullptr for others.
  [[nodiscard]] virtual const Dict* members() const { return nullptr; }
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using Function = Value (*)(Run& run, const Value& self, const Arguments& arguments);

struct Callable {
  std::string name;
  std::function<Value(Run& run, const Arguments& arguments)> call;
};

/// The arguments in the order of `names`, nullptr for those not given. Throws if there are too
/// many, one is unknown, or one of the first `required` is missing. `arguments` must outlive it.
[[nodiscard]] std::vector<const Value*> bind(const Arguments& arguments, std::string_view callee,
                                             std::initializer_list<std::string_view> names,
                                             std::size_t required = 0);

/// Throws Error{file} with the message; Template adds its name and the line.
template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::file, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace moesaic::jinja
