#include "src/jinja/statements.h"

#include <algorithm>

#include "src/jinja/loop.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {

Flow Statement::execute(Run& run) const {
  const Run::Deeper deeper(run);
  run.charge(8);
  run.set_line(line());
  return act(run);
}

Flow execute_all(const Body& body, Run& run) {
  for (const Statement* statement : body) {
    const Flow flow = statement->execute(run);
    if (flow != Flow::onward) return flow;
  }
  return Flow::onward;
}

void Target::assign(Run& run, const Value& value) const {
  if (!several.empty()) {
    const std::vector<Value> items = items_of(value);
    if (items.size() != several.size()) {
      refuse("{} values to unpack, expected {}", items.size(), several.size());
    }
    for (std::size_t i = 0; i < items.size(); ++i) several[i].assign(run, items[i]);
    return;
  }
  if (member.empty()) return run.assign(name, value);
  const Value object = run.look_up(name);
  if (const Undefined* missing = object.undefined()) refuse("{}", *missing->why);
  if (object.object() == nullptr || !object.object()->set_member(member, value)) {
    refuse("cannot assign attribute '{}' on non-namespace object '{}'", member, name);
  }
}

Flow Data::act(Run& run) const {
  run.write(text_);
  return Flow::onward;
}

Flow Print::act(Run& run) const {
  const Value value = expression_->evaluate(run);
  run.set_line(line());
  if (const std::string* text = value.text()) {
    run.write(*text);
  } else {
    run.write(to_text(value));
  }
  return Flow::onward;
}

Flow If::act(Run& run) const {
  for (const auto& [condition, body] : branches_) {
    if (condition == nullptr || condition->evaluate(run).truth()) return execute_all(body, run);
  }
  return Flow::onward;
}

std::vector<Value> For::chosen_items(Run& run) const {
  const Value all = parts_.items->evaluate(run);
  run.set_line(line());
  std::vector<Value> items = items_of(all);
  run.charge(items.size() * sizeof(Value));
  if (parts_.condition == nullptr) return items;
  std::vector<Value> chosen;
  for (Value& item : items) {
    const Run::InScope scope(run);
    parts_.target.assign(run, item);
    if (parts_.condition->evaluate(run).truth()) chosen.push_back(std::move(item));
  }
  return chosen;
}

Flow For::act(Run& run) const {
  const auto loop = std::make_shared<Loop>(chosen_items(run));
  bool has_ended_a_pass = false;  // at the end of the body: then there is no else
  for (; !loop->is_over(); loop->advance()) {
    const Run::InScope scope(run);
    run.assign("loop", Value(std::shared_ptr<Object>(loop)));
    parts_.target.assign(run, loop->item());
    const Flow flow = execute_all(parts_.body, run);
    if (flow == Flow::break_loop) break;
    has_ended_a_pass = has_ended_a_pass || flow == Flow::onward;
  }
  if (has_ended_a_pass) return Flow::onward;
  const Run::InScope scope(run);
  return execute_all(parts_.otherwise, run);
}

Flow Set::act(Run& run) const {
  const Value value = value_->evaluate(run);
  run.set_line(line());
  target_.assign(run, value);
  return Flow::onward;
}

Flow CaptureBlock::act(Run& run) const {
  std::string text;
  Flow flow = Flow::onward;
  {
    const Run::InScope scope(run);
    Run::Capture capture(run);
    flow = execute_all(body_, run);
    text = capture.take();
  }
  Value value(std::move(text));
  for (const Filter* filter : filters_) value = filter->apply(run, value);
  if (target_.empty()) {
    run.write(to_text(value));
  } else {
    target_[0].assign(run, value);
  }
  return flow;
}

Flow With::act(Run& run) const {
  std::vector<Value> values;
  for (const auto& assignment : assignments_) values.push_back(assignment.second->evaluate(run));
  const Run::InScope scope(run);
  for (std::size_t i = 0; i < values.size(); ++i) assignments_[i].first.assign(run, values[i]);
  return execute_all(body_, run);
}

Flow Generation::act(Run& run) const {
  std::string text;
  {
    const Run::InScope scope(run);
    Run::Capture capture(run);
    execute_all(body_, run);
    text = capture.take();
  }
  run.mark_generated(text.size());
  run.write(text);
  return Flow::onward;
}

namespace {

using NamedArguments = std::vector<std::pair<std::string, Value>>;

/// The argument of that name, taken out.
std::optional<Value> take(NamedArguments& named, std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

/// Sets the names that a macro is given; `arguments` are those that no parameter takes.
void assign_given(const MacroParts& parts, Run& run, Arguments arguments) {
  if (parts.given.caller == FirstUse::reads) {
    run.assign("caller",
               take(arguments.named, "caller")
                   .value_or(Value::undefined("there is no caller: this is no call block")));
  }
  if (parts.given.kwargs == FirstUse::reads) {
    Dict named;
    for (auto& [name, value] : arguments.named) named.set(Value(name), std::move(value));
    run.assign("kwargs", make_dict(std::move(named)));
  } else if (!arguments.named.empty()) {
    refuse("macro '{}' takes no keyword argument '{}'", parts.name, arguments.named[0].first);
  }
  if (parts.given.varargs == FirstUse::reads) {
    run.assign("varargs",
               run.made(make_sequence(std::move(arguments.positional), SequenceKind::tuple)));
  } else if (!arguments.positional.empty()) {
    refuse("macro '{}' takes not more than {} arguments", parts.name, parts.parameters.size());
  }
}

/// Binds arguments to parameters, in the scope of the call.
void bind_parameters(const MacroParts& parts, Run& run, const Arguments& arguments) {
  const std::size_t count = parts.parameters.size();
  const std::size_t taken = std::min(count, arguments.positional.size());
  const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken);
  std::vector<std::optional<Value>> values(arguments.positional.begin(), rest);
  NamedArguments named = arguments.named;
  for (std::size_t i = taken; i < count; ++i) values.push_back(take(named, parts.parameters[i]));
  assign_given(parts, run, {{rest, arguments.positional.end()}, std::move(named)});
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = parts.parameters[i];
    if (!values[i] && i + parts.defaults.size() >= count) {
      values[i] = parts.defaults[i + parts.defaults.size() - count]->evaluate(run);
    }
    run.assign(name, values[i]
                         ? *std::move(values[i])
                         : Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
}

Value call_macro(const MacroParts& parts, const std::weak_ptr<Scope>& home, Run& run,
                 const Arguments& arguments) {
  std::shared_ptr<Scope> parent = home.lock();
  if (parent == nullptr)
    refuse("macro '{}' is called outside of the block it stands in", parts.name);
  const Run::InScope scope(run, std::move(parent));
  Run::Capture capture(run);
  bind_parameters(parts, run, arguments);
  execute_all(parts.body, run);
  return Value(capture.take());
}

}  // namespace

void GivenNames::note(std::string_view name, FirstUse use) {
  FirstUse* first = name == "caller"    ? &caller
                    : name == "kwargs"  ? &kwargs
                    : name == "varargs" ? &varargs
                                        : nullptr;
  if (first != nullptr && *first == FirstUse::none) *first = use;
}

Value make_macro(const MacroParts& parts, Run& run) {
  // A scope that holds its macros must not be held by them.
  return Value(std::make_shared<const Callable>(Callable{
      parts.name,
      [&parts, home = std::weak_ptr<Scope>(run.scope())](Run& caller, const Arguments& arguments) {
        return call_macro(parts, home, caller, arguments);
      }}));
}

Flow Macro::act(Run& run) const {
  run.assign(parts_.name, make_macro(parts_, run));
  return Flow::onward;
}

Flow CallBlock::act(Run& run) const {
  const Value caller = make_macro(caller_, run);
  run.write(to_text(call_->call(run, &caller)));
  return Flow::onward;
}

}  // namespace moesaic::jinja
