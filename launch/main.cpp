#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/runtime.h"
#include "launch/options/option_help.h"
#include "launch/verbs/verbs.h"

namespace {

using namespace moesaic;

/// --help and --version need no ranks. The answer, or nothing if the command is another one.
std::string answer_without_ranks(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return overall_help();
  if (arguments[0] == "help") {  // "help VERB" is "VERB --help"
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  const auto asks = [](const std::string& argument) {
    return argument == "--help" || argument == "-h" || argument == "--version";
  };
  if (std::none_of(arguments.begin(), arguments.end(), asks)) return "";
  const Command command = parse_command(arguments, {});
  if (command.options.version) return version_text();
  if (!command.options.help) return "";
  return command.verb ? verb_help(*command.verb) : overall_help();
}

/// Descriptors 0, 1 and 2 that are closed would become those of the next files that are opened, and
/// what is printed would go there. In their place stands one that refuses what it is for.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest that is free, so this one.
    (void)::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

/// Whether the launcher of this job says that it has started this process as another than its
/// first.
bool is_later_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string_view(rank) != "0";
  }
  return false;
}

void run_verb(Runtime& runtime) {
  if (runtime.options().show_config) {
    if (runtime.is_first()) fmt::print("{}", config_text(runtime.command()));
    return;
  }
  switch (*runtime.command().verb) {
    case Verb::chat:
      return run_chat(runtime);
    case Verb::generate:
      return run_generate(runtime);
    case Verb::score:
      return run_score(runtime);
    case Verb::sft:
      return run_sft(runtime);
    case Verb::convert:
      return run_convert(runtime);
    case Verb::tokenize:
      return run_tokenize(runtime);
    case Verb::inspect:
      return run_inspect(runtime);
    case Verb::bench_model:
      return run_bench_model(runtime);
    case Verb::bench_kernels:
      return run_bench_kernels(runtime);
    case Verb::bench_layer:
      return run_bench_layer(runtime);
    case Verb::bench_exchange:
      return run_bench_exchange(runtime);
    case Verb::bench_sft:
      return run_bench_sft(runtime);
    case Verb::doctor:
      return run_doctor(runtime);
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  try {
    if (const std::string answer = answer_without_ranks(argc, argv); !answer.empty()) {
      if (!is_later_rank()) (void)std::fputs(answer.c_str(), stdout);
      flush_output();
      return argc == 1 ? 2 : 0;
    }
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
  return run_job(argc, argv, run_verb);
}
