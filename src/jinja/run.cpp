#include "src/jinja/run.h"

#include <algorithm>

namespace moesaic::jinja {
namespace {

/// Members in the order in which they came; Jinja's namespace().
class Namespace final : public Object {
 public:
  explicit Namespace(Dict members) : members_(std::move(members)) {}

  [[nodiscard]] std::optional<Value> member(std::string_view name) const override {
    const Value* found = members_.find(name);
    if (found == nullptr) return std::nullopt;
    return *found;
  }
  bool set_member(std::string_view name, Value value) override {
    members_.set(Value(name), std::move(value));
    return true;
  }
  [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
  [[nodiscard]] const Dict* members() const override { return &members_; }

 private:
  Dict members_;
};

}  // namespace

Value Run::made(Value value) {
  if (const std::string* text = value.text()) {
    charge(text->size());
  } else if (const Sequence* sequence = value.sequence()) {
    charge(sequence->items.size() * sizeof(Value));
  }
  return value;
}

Value Run::look_up(std::string_view name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  return Value::unknown(name);
}

void Run::assign(std::string_view name, Value value) {
  auto& variables = scope_->variables;
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == name; });
  if (found == variables.end()) {
    variables.emplace_back(name, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void Run::write(std::string_view text) {
  charge(text.size());
  if (text.size() > limits_.output - std::min(limits_.output, output_.size())) {
    refuse("renders more than {} bytes", limits_.output);
  }
  output_ += text;
}

void Run::mark_generated(std::size_t bytes) {
  const std::size_t begin = captures_ > 0 ? root_bytes_ : output_.size();
  generated_.push_back({begin, begin + bytes});
}

Value Run::make_namespace(Dict members) {
  namespaces_.push_back(std::make_unique<Namespace>(std::move(members)));
  // An alias that owns nothing.
  return Value(std::shared_ptr<Object>(std::shared_ptr<Object>(), namespaces_.back().get()));
}

Run::Capture::Capture(Run& run) : run_(run), saved_(std::move(run.output_)) {
  if (run.captures_++ == 0) run.root_bytes_ = saved_.size();
  run.output_.clear();
}

Run::Capture::~Capture() {
  --run_.captures_;
  run_.output_ = std::move(saved_);
}

std::string Run::Capture::take() {
  return std::move(run_.output_);
}

void Run::too_much_work() const {
  refuse("takes more than {} steps and bytes to render", limits_.work);
}

void Run::too_deep() const {
  refuse("calls itself, or nests, more than {} levels deep", limits_.depth);
}

}  // namespace moesaic::jinja
