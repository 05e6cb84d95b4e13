#include "tests/gpu/ptx_machine/program.h"

#include <fmt/core.h>

#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>

namespace moesaic::ptx {
namespace {

constexpr std::string_view kSpecialNames[kNumSpecialSlots] = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Takes the first word off a text.
std::string_view take_word(std::string_view& text) {
  const auto end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

/// Bytes of ".b8 name[64]", ".param .u64 name"; and the name.
std::pair<std::string, std::size_t> declared_variable(std::string_view text) {
  std::size_t item = 0;
  while (!text.empty() && text[0] == '.') {
    const std::string_view word = take_word(text);
    if (word == ".align") take_word(text);
    const auto digits = word.find_first_of("0123456789");
    if (word.size() > 2 && digits == 2) item = std::strtoul(word.data() + 2, nullptr, 10) / 8;
  }
  const auto bracket = text.find('[');
  std::size_t count = 1;
  if (bracket != std::string_view::npos) {
    count = std::strtoul(text.data() + bracket + 1, nullptr, 10);
  }
  if (item == 0) throw MachineError(fmt::format("unknown declaration {}", text));
  return {std::string(trimmed(text.substr(0, bracket))), item * count};
}

class KernelParser {
 public:
  explicit KernelParser(Kernel& kernel) : kernel_(kernel) {
    for (std::int32_t i = 0; i < kNumSpecialSlots; ++i) slots_[std::string(kSpecialNames[i])] = i;
  }

  void parameter(std::string_view text) {
    const auto [name, bytes] = declared_variable(text);
    const std::size_t align = bytes >= 8 ? 8 : bytes;
    kernel_.parameter_bytes = (kernel_.parameter_bytes + align - 1) / align * align;
    variables_[name] = kernel_.parameter_bytes;
    kernel_.parameter_bytes += bytes;
  }

  void label(std::string_view name) {
    labels_[std::string(trimmed(name))] = static_cast<int>(kernel_.code.size());
  }

  void statement(std::string_view text, int line) {
    text = trimmed(text);
    if (text.empty()) return;
    if (text.starts_with(".reg")) return add_registers(text);
    if (text.starts_with(".pragma") || text.starts_with(".loc")) return;
    if (text.starts_with(".shared")) return add_shared(text);
    Instruction in;
    in.line = line;
    if (text[0] == '@') {
      in.guard_negated = text[1] == '!';
      in.guard = slot(take_word(text).substr(in.guard_negated ? 2 : 1));
    }
    in.text = std::string(take_word(text));
    if (in.text.starts_with("mov") && text.starts_with('{')) in.text += " {}";  // to several
    while (!text.empty()) add_operand(in, text);
    if (!set_operation(in)) throw MachineError(fmt::format("unknown instruction {}", in.text));
    kernel_.code.push_back(std::move(in));
  }

  void finish() {
    for (Instruction& in : kernel_.code) {
      if (in.control != Control::branch) continue;
      const auto found = labels_.find(in.symbol);
      if (found == labels_.end()) throw MachineError("no label " + in.symbol);
      in.target = found->second;
    }
  }

 private:
  void add_shared(std::string_view text) {
    const auto [name, bytes] = declared_variable(text);
    kernel_.shared_bytes = (kernel_.shared_bytes + 127) / 128 * 128;
    variables_[name] = kernel_.shared_bytes;
    kernel_.shared_bytes += bytes;
  }

  /// ".reg .b16 tmp": those whose names do not begin with %.
  void add_registers(std::string_view text) {
    const std::string_view name = trimmed(text.substr(text.find_last_of(" \t")));
    if (name[0] != '%') plain_registers_.insert(std::string(name));
  }

  std::int32_t slot(std::string_view name) {
    const auto [at, is_new] = slots_.try_emplace(std::string(name), kernel_.num_slots);
    if (is_new) ++kernel_.num_slots;
    return at->second;
  }
  std::int32_t constant(std::uint64_t value) {
    const std::string name = fmt::format("={}", value);
    const bool is_new = !slots_.contains(name);
    const std::int32_t at = slot(name);
    if (is_new) kernel_.constants.emplace_back(at, value);
    return at;
  }

  static void push(Instruction& in, std::int32_t slot) {
    in.slots.at(static_cast<std::size_t>(in.num_slots++)) = slot;
  }

  /// A register, a constant, or a name, without brackets.
  void add_value(Instruction& in, std::string_view word) {
    if (word[0] == '%' || plain_registers_.contains(std::string(word))) {
      const auto bar = word.find('|');
      push(in, slot(word.substr(0, bar)));
      if (bar != std::string_view::npos) push(in, slot(word.substr(bar + 1)));
    } else if (word.starts_with("0f")) {
      push(in, constant(std::strtoull(word.data() + 2, nullptr, 16)));
    } else if (word[0] == '-' || std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      push(in, constant(static_cast<std::uint64_t>(std::strtoll(word.data(), nullptr, 0))));
    } else if (const auto found = variables_.find(std::string(word)); found != variables_.end()) {
      push(in, constant(found->second));
    } else {
      in.symbol = std::string(word);
    }
  }

  void add_address(Instruction& in, std::string_view text) {
    const auto plus = text.find('+');
    in.offsets.at(static_cast<std::size_t>(in.num_addresses++)) =
        plus == std::string_view::npos ? 0 : std::strtoll(text.data() + plus + 1, nullptr, 10);
    add_value(in, trimmed(text.substr(0, plus)));
    if (!in.symbol.empty()) throw MachineError("unknown address " + in.symbol);
  }

  /// Takes one operand off the text, "{%r1, %r2}", "[%rd1+8]" or "%r1", and the comma behind it.
  void add_operand(Instruction& in, std::string_view& text) {
    const char open = text[0];
    const char close = open == '{' ? '}' : open == '[' ? ']' : ',';
    const auto end = std::min(text.find(close), text.size());
    if (open == '[') {
      add_address(in, trimmed(text.substr(1, end - 1)));
    } else if (open == '{') {
      std::string_view items = text.substr(1, end - 1);
      while (!items.empty()) add_operand(in, items);
    } else {
      const std::string_view word = trimmed(text.substr(0, end));
      if (word.empty() || word[0] == '!')
        throw MachineError(fmt::format("unknown operand {}", word));
      add_value(in, word);
    }
    text = trimmed(text.substr(std::min(close == ',' ? end : end + 1, text.size())));
    if (!text.empty() && text[0] == ',') text = trimmed(text.substr(1));
  }

  Kernel& kernel_;
  std::map<std::string, std::int32_t> slots_;
  std::map<std::string, std::uint64_t> variables_;
  std::map<std::string, int> labels_;
  std::set<std::string> plain_registers_;
};

std::string without_comments(const std::string& text) {
  std::string clean;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size() - 1);
    clean += text[i];
  }
  return clean;
}

/// Walks through a text and counts its lines.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  [[nodiscard]] int line() const { return line_; }
  /// The text up to `end`, which is passed too. False: there is none.
  bool until(char end, std::string_view& part) {
    const auto found = text_.find(end, at_);
    if (found == std::string::npos) return false;
    part = std::string_view(text_).substr(at_, found - at_);
    for (const char c : part) line_ += c == '\n' ? 1 : 0;
    at_ = found + 1;
    return true;
  }
  /// Whether the next mark is this one.
  [[nodiscard]] bool is_next(char mark) const {
    const auto found = text_.find_first_not_of(" \t\r\n", at_);
    return found != std::string::npos && text_[found] == mark;
  }
  /// Whether the next mark is a brace; it is passed.
  bool pass_brace(char brace) {
    if (!is_next(brace)) return false;
    const auto found = text_.find_first_not_of(" \t\r\n", at_);
    for (; at_ <= found; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
    return true;
  }
  bool go_to(std::string_view word) {
    const auto found = text_.find(word, at_);
    if (found == std::string::npos) return false;
    for (; at_ < found + word.size(); ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
    return true;
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

Kernel parse_kernel(Reader& reader) {
  Kernel kernel;
  KernelParser parser(kernel);
  std::string_view part;
  reader.until('(', part);
  kernel.name = std::string(trimmed(part));
  reader.until(')', part);
  while (!trimmed(part).empty()) {
    const auto comma = std::min(part.find(','), part.size());
    parser.parameter(trimmed(part.substr(0, comma)));
    part = part.substr(std::min(comma + 1, part.size()));
  }
  reader.until('{', part);
  if (const auto found = part.find(".maxntid"); found != std::string_view::npos) {
    kernel.max_threads = static_cast<unsigned>(std::strtoul(part.data() + found + 8, nullptr, 10));
  }
  for (int depth = 1; depth > 0;) {
    if (reader.pass_brace('{')) {
      ++depth;
    } else if (reader.pass_brace('}')) {
      --depth;
    } else if (reader.is_next('$') && reader.until(':', part)) {
      parser.label(part);
    } else if (reader.until(';', part)) {
      parser.statement(part, reader.line());
    } else {
      throw MachineError("kernel " + kernel.name + " has no end");
    }
  }
  parser.finish();
  return kernel;
}

}  // namespace

std::map<std::string, Kernel> parse_program(const std::string& text) {
  const std::string clean = without_comments(text);
  Reader reader(clean);
  std::map<std::string, Kernel> kernels;
  while (reader.go_to(".entry")) {
    try {
      Kernel kernel = parse_kernel(reader);
      kernels[kernel.name] = std::move(kernel);
    } catch (const MachineError& error) {
      throw MachineError(fmt::format("line {}: {}", reader.line(), error.what()));
    }
  }
  return kernels;
}

}  // namespace moesaic::ptx
