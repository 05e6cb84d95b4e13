#include "tests/support/amx_emulator.h"

#include <fmt/format.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <system_error>

#include "kernels/amx_permission.h"
#include "tests/support/amx_decoder.h"
#include "tests/support/amx_tiles.h"

namespace moesaic::test {
namespace {

// Initialised without code and reached without a call, since a signal handler uses it.
[[gnu::tls_model("initial-exec")]] constinit thread_local AmxTiles thread_tiles;

struct sigaction previous_action;  // of SIGILL

std::uintptr_t register_value(const gregset_t& registers, int number) {
  constexpr int kByEncoding[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  return number == kNoRegister ? 0 : static_cast<std::uintptr_t>(registers[kByEncoding[number]]);
}

AmxMemory memory_operand(const AmxInstruction& instruction, const gregset_t& registers) {
  std::uintptr_t address = register_value(registers, instruction.base);
  if (instruction.base == kNextInstruction) {
    address += static_cast<std::uintptr_t>(instruction.length);
  }
  address += static_cast<std::uintptr_t>(std::intptr_t{instruction.displacement});
  const std::uintptr_t stride =
      register_value(registers, instruction.index) * static_cast<std::uintptr_t>(instruction.scale);
  return {.address = address, .stride = stride};
}

// On the stack, since a signal may come inside malloc.
using Message = fmt::basic_memory_buffer<char, 1024>;

Message fault_message(const AmxInstruction& instruction, const void* code, const char* fault) {
  Message text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "AMX emulator: {} (tile {}", instruction.name, instruction.tile);
  if (instruction.is_product()) fmt::format_to(out, " += {} * {}", instruction.a, instruction.b);
  fmt::format_to(out, ") at {}: {}. Rows x bytes of the tiles:", code, fault);
  for (const AmxTiles::Shape& shape : thread_tiles.shapes()) {
    fmt::format_to(out, " {}x{}", shape.rows, shape.row_bytes);
  }
  text.push_back('\n');
  return text;
}

// The process dies when the signal handler returns, where it was interrupted.
void die_of_illegal_instruction(const Message& message) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
  ::signal(SIGILL, SIG_DFL);
  ::raise(SIGILL);
}

void pass_on(int signal, siginfo_t* info, void* context, const std::uint8_t* code) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    Message message;
    fmt::format_to(std::back_inserter(message),
                   "AMX emulator: illegal instruction at {}, not one of AMX: {:02x} {:02x}\n",
                   static_cast<const void*>(code), code[0], code[1]);
    die_of_illegal_instruction(message);
  }
}

// Executes the instruction that trapped and those of AMX that directly follow it.
void handle_illegal_instruction(int signal, siginfo_t* info, void* context) {
  gregset_t& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* code = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  std::optional<AmxInstruction> instruction = decode_amx(code);
  if (!instruction) return pass_on(signal, info, context, code);
  while (instruction) {
    const AmxMemory memory = memory_operand(*instruction, registers);
    if (const char* fault = thread_tiles.execute(*instruction, memory)) {
      return die_of_illegal_instruction(fault_message(*instruction, code, fault));
    }
    code += instruction->length;
    registers[REG_RIP] = reinterpret_cast<greg_t>(code);
    instruction = decode_amx(code);
  }
}

bool install() {
  struct sigaction action = {};
  action.sa_sigaction = handle_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  // The previous action first: the new one may be needed as soon as it stands.
  if (::sigaction(SIGILL, nullptr, &previous_action) != 0 ||
      ::sigaction(SIGILL, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "sigaction(SIGILL)");
  }
  return true;
}

}  // namespace

bool cpu_has_amx() {
  static const bool has_amx = cpuid_has_amx() && ask_for_tiles() == 0;
  return has_amx;
}

void install_amx_emulator() {
  if (cpu_has_amx()) return;
  [[maybe_unused]] static const bool is_installed = install();
}

}  // namespace moesaic::test
