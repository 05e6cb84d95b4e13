#pragma once

#include <string_view>
#include <vector>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// What `loop` is inside of a for block.
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(std::vector<Value> items) : items_(std::move(items)) {}

  [[nodiscard]] std::optional<Value> member(std::string_view name) const override;
  [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }

  [[nodiscard]] std::int64_t size() const { return std::ssize(items_); }
  [[nodiscard]] bool is_over() const { return index_ >= size(); }
  [[nodiscard]] const Value& item() const { return items_[static_cast<std::size_t>(index_)]; }
  void advance() { ++index_; }

 private:
  [[nodiscard]] Value neighbour(std::int64_t distance) const;
  [[nodiscard]] Value function(std::string_view name) const;
  [[nodiscard]] bool is_changed(const std::vector<Value>& values) const;

  std::vector<Value> items_;
  std::int64_t index_ = 0;
  mutable std::vector<Value> last_asked_;  // what changed() was asked about
  mutable bool asked_ = false;
};

}  // namespace moesaic::jinja
