#include "src/jinja/loop.h"

#include <algorithm>

#include "src/jinja/operators.h"

namespace moesaic::jinja {

Value Loop::neighbour(std::int64_t distance) const {
  const std::int64_t at = index_ + distance;
  if (at < 0) return Value::undefined("there is no previous item");
  if (at >= size()) return Value::undefined("there is no next item");
  return items_[static_cast<std::size_t>(at)];
}

Value Loop::function(std::string_view name) const {
  if (name == "cycle") {
    return Value(std::make_shared<const Callable>(
        Callable{"cycle", [index = index_](Run&, const Arguments& arguments) {
                   const auto count = std::ssize(arguments.positional);
                   if (count == 0) refuse("no items for cycling given");
                   return arguments.positional[static_cast<std::size_t>(index % count)];
                 }}));
  }
  return Value(std::make_shared<const Callable>(
      Callable{"changed", [loop = weak_from_this()](Run&, const Arguments& arguments) {
                 const auto self = loop.lock();
                 if (self == nullptr) refuse("changed() is called outside of its loop");
                 return Value(self->is_changed(arguments.positional));
               }}));
}

bool Loop::is_changed(const std::vector<Value>& values) const {
  const bool same = asked_ && std::equal(last_asked_.begin(), last_asked_.end(), values.begin(),
                                         values.end(), equal);
  last_asked_ = values;
  asked_ = true;
  return !same;
}

std::optional<Value> Loop::member(std::string_view name) const {
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == size());
  if (name == "length") return Value(size());
  if (name == "revindex") return Value(size() - index_);
  if (name == "revindex0") return Value(size() - index_ - 1);
  if (name == "previtem") return neighbour(-1);
  if (name == "nextitem") return neighbour(1);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "cycle" || name == "changed") return function(name);
  return std::nullopt;
}

}  // namespace moesaic::jinja
