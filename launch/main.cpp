#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/split.h"
#include "launch/job/failure.h"
#include "launch/job/launcher.h"
#include "launch/job/runtime.h"
#include "launch/job/verbs.h"
#include "launch/options/option_help.h"
#include "launch/options/option_table.h"
#include "launch/study/smpi_export.h"
#include "launch/study/study_export.h"
#include "launch/study/study_predict.h"
#include "launch/study/study_report.h"
#include "launch/study/study_run.h"
#include "src/checkpoint/read_faults.h"

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
  const auto first_flag =
      std::ranges::find_if(arguments, [](const std::string& word) { return word[0] == '-'; });
  const std::string group = fmt::format("{}", fmt::join(arguments.begin(), first_flag, " "));
  if (std::string help = group_help(group); !help.empty()) return help;
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

int call_alone(const Command& command) {
  switch (*command.verb) {
    case Verb::plan:
      run_plan(command);
      return 0;
    case Verb::study_run:
      return run_study(command);
    case Verb::study_points:
      return run_study_points(command);
    case Verb::study_report:
      return run_study_report(command);
    case Verb::study_predict:
      return run_study_predict(command);
    case Verb::study_export_extrap:
      return run_export_extrap(command);
    case Verb::study_export_smpi:
      return run_export_smpi(command);
    default:
      fail(ErrorKind::internal, "a verb that needs ranks");
  }
}

/// A verb that starts no MPI, with what its command line says.
int run_alone(const Command& command) {
  require(Launcher().started().processes == 1, ErrorKind::usage,
          "moesaic {} is one process, no ranks: run it without mpirun or srun",
          verb_row(*command.verb).name);
  for (const std::string& note : command.notes) Log().write(LogLevel::warning, "{}", note);
  int code = 0;
  if (command.options.show_config) {
    fmt::print("{}", config_text(command));
  } else {
    const ReadFaultHandler faults;
    code = call_alone(command);
  }
  flush_output();
  return code;
}

/// The command, if it is of a verb that starts no MPI; others are understood by all ranks together.
std::optional<Command> command_without_ranks(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const VerbRow& row : verb_table()) {
    const std::vector<std::string_view> words = split(row.name, ' ');
    const bool is_asked = arguments.size() >= words.size() &&
                          std::equal(words.begin(), words.end(), arguments.begin());
    if (is_asked && runs_alone(row.verb)) return parse_command(arguments, moesaic_environment());
  }
  return std::nullopt;
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
    case Verb::serve:
      return run_serve(runtime);
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
    case Verb::study_point:
      return run_study_point(runtime);
    default:
      fail(ErrorKind::internal, "a verb that needs no ranks");
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // what grows beyond a limit gets an error, as on a full disk
  try {
    if (const std::string answer = answer_without_ranks(argc, argv); !answer.empty()) {
      if (!Launcher().is_later_process()) (void)std::fputs(answer.c_str(), stdout);
      flush_output();
      return argc == 1 ? 2 : 0;
    }
    if (const auto command = command_without_ranks(argc, argv)) return run_alone(*command);
  } catch (...) {
    const Failure failure = describe_current_exception();
    if (!Launcher().is_later_process()) Log().write(failure.level, "{}", failure.message);
    return failure.code;
  }
  return run_job(argc, argv, run_verb);
}
