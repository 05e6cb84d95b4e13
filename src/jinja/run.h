#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// What a rendering may take; more throws. Templates are foreign data.
struct Limits {
  int depth = 1000;                           ///< of expressions, blocks and macros in each other
  std::int64_t work = std::int64_t{1} << 30;  ///< bytes made, and 8 for every step
  std::size_t output = std::size_t{1} << 26;  ///< bytes
};

/// Bytes of the rendered text that a generation block made.
struct Generated {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Variables of a block. Their names live in the template.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;
};

/// The state of one rendering.
class Run {
 public:
  explicit Run(const Limits& limits) : limits_(limits), scope_(std::make_shared<Scope>()) {}

  /// Counts work done, in bytes. Throws once it is too much.
  void charge(std::size_t bytes) {
    work_ += static_cast<std::int64_t>(bytes);
    if (work_ > limits_.work) too_much_work();
  }
  /// Counts a value that was made.
  Value made(Value value);

  /// The variable; undefined if there is none.
  [[nodiscard]] Value look_up(std::string_view name) const;
  /// Sets it in the innermost scope. `name` must live as long as the run.
  void assign(std::string_view name, Value value);
  [[nodiscard]] const std::shared_ptr<Scope>& scope() const { return scope_; }

  void write(std::string_view text);
  [[nodiscard]] std::string take_output() { return std::move(output_); }
  [[nodiscard]] std::vector<Generated> take_generated() { return std::move(generated_); }

  /// Remembers that a generation block made the next `bytes` of the whole text.
  void mark_generated(std::size_t bytes);

  /// The line of the template that is at work, for messages.
  [[nodiscard]] int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  /// A namespace lives as long as the run, so that those that hold each other are freed.
  Value make_namespace(Dict members);

  /// Enters a block: a new scope, whose parent is the current one or another one.
  class InScope {
   public:
    explicit InScope(Run& run) : InScope(run, run.scope_) {}
    InScope(Run& run, std::shared_ptr<Scope> parent) : run_(run), saved_(run.scope_) {
      run.scope_ = std::make_shared<Scope>(Scope{std::move(parent), {}});
    }
    ~InScope() { run_.scope_ = std::move(saved_); }
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;

   private:
    Run& run_;
    std::shared_ptr<Scope> saved_;
  };

  /// Collects what is written while it lives.
  class Capture {
   public:
    explicit Capture(Run& run);
    ~Capture();
    [[nodiscard]] std::string take();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

   private:
    Run& run_;
    std::string saved_;
  };

  /// One level deeper; throws if that is too deep.
  class Deeper {
   public:
    explicit Deeper(Run& run) : run_(run) {
      if (run.depth_ >= run.limits_.depth) run.too_deep();
      ++run.depth_;
    }
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Run& run_;
  };

 private:
  [[noreturn]] void too_much_work() const;
  [[noreturn]] void too_deep() const;

  Limits limits_;
  std::shared_ptr<Scope> scope_;
  std::string output_;          // what is being written: the whole text, or what a capture collects
  std::size_t root_bytes_ = 0;  // of the whole text, while something is captured
  int captures_ = 0;
  std::vector<Generated> generated_;
  std::deque<std::unique_ptr<Object>> namespaces_;
  std::int64_t work_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

}  // namespace moesaic::jinja
