#include "launch/option_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace moesaic {
namespace {

constexpr std::uint32_t bit(Verb verb) {
  return 1U << static_cast<unsigned>(verb);
}

constexpr std::uint32_t kGenerate = bit(Verb::generate);
constexpr std::uint32_t kScore = bit(Verb::score);
constexpr std::uint32_t kTokenize = bit(Verb::tokenize);
constexpr std::uint32_t kInspect = bit(Verb::inspect);
constexpr std::uint32_t kBench = bit(Verb::bench_model);
constexpr std::uint32_t kDoctor = bit(Verb::doctor);
constexpr std::uint32_t kEngine = kGenerate | kScore | kBench;  // verbs that run the model
constexpr std::uint32_t kAll = kEngine | kTokenize | kInspect | kDoctor;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kText = "Text";
constexpr std::string_view kGeneration = "Generation";
constexpr std::string_view kBenchmark = "Benchmark";
constexpr std::string_view kMachine = "Machine";
constexpr std::string_view kRanks = "Ranks";
constexpr std::string_view kProgram = "Program";

using O = Options;

constexpr std::array kOptions = {
    OptionRow{"model", 'm', "DIR", &O::model, kModel, kAll & ~kDoctor,
              "Hugging Face checkpoint directory"},
    OptionRow{"precision", '\0', "TYPE", &O::precision, kModel, kEngine,
              "activations, products and key-value cache; fp32 is slower, for checks", "bf16|fp32"},
    OptionRow{"numerics", '\0', "KIND", &O::numerics, kModel, kEngine | kDoctor,
              "portable: the same bits on every CPU; native: also instructions that sum in an "
              "order of their own, where they are the fastest",
              "native|portable"},
    OptionRow{"ctx-size", 'c', "N", &O::ctx_size, kModel, kGenerate | kScore,
              "most tokens of one sequence; 0: as many as the model was made for", "", 0, 1e12},

    OptionRow{"prompt", 'p', "TEXT", &O::prompt, kText, kGenerate | kTokenize, "one prompt"},
    OptionRow{"file", 'f', "FILE", &O::file, kText, kGenerate | kScore | kTokenize,
              "prompts, one a line, or JSONL {\"prompt\": \"...\"}; score takes it as one text; - "
              "is the standard input"},
    OptionRow{"no-special", '\0', "", &O::no_special, kText, kTokenize,
              "leave out the special tokens that the tokenizer adds"},

    OptionRow{"predict", 'n', "N", &O::predict, kGeneration, kGenerate,
              "most tokens to generate for a prompt", "", 0, 1e12},
    OptionRow{"temp", '\0', "T", &O::temp, kGeneration, kGenerate,
              "temperature; 0 takes the likeliest token", "", 0, 1e6},
    OptionRow{"top-k", '\0', "K", &O::top_k, kGeneration, kGenerate,
              "sample among the K likeliest tokens; 0: all", "", 0, 1e12},
    OptionRow{"top-p", '\0', "P", &O::top_p, kGeneration, kGenerate,
              "sample among the likeliest tokens that together reach P; 1: all", "", 0, 1},
    OptionRow{"seed", 's', "N", &O::seed, kGeneration, kGenerate | kBench,
              "of the random numbers; equal seeds give equal texts", "", 0, 9e18},
    OptionRow{"ignore-eos", '\0', "", &O::ignore_eos, kGeneration, kGenerate,
              "go on after an end-of-sequence token"},
    OptionRow{"parallel", '\0', "N", &O::parallel, kGeneration, kGenerate,
              "sequences that a rank works on at a time", "", 1, 1e6},

    OptionRow{"n-prompt", 'p', "N", &O::n_prompt, kBenchmark, kBench,
              "prompt tokens of a rank (pp); 0: no such test", "", 0, 1e9},
    OptionRow{"n-gen", 'n', "N", &O::n_gen, kBenchmark, kBench,
              "generated tokens of a rank (tg); 0: no such test", "", 0, 1e9},
    OptionRow{"repetitions", 'r', "N", &O::repetitions, kBenchmark, kBench, "runs of each test", "",
              1, 1e6},
    OptionRow{"output", 'o', "FORM", &O::output, kBenchmark, kBench, "form of the results",
              "md|csv|json|jsonl"},

    OptionRow{"threads", 't', "N", &O::threads, kMachine, kEngine | kDoctor,
              "threads of a rank; 0: its share of the cores it may use", "", 0, 4096},
    OptionRow{"batch-size", 'b', "N", &O::batch_size, kMachine, kEngine,
              "most tokens that a rank processes at once; a longer prompt is cut into chunks", "",
              1, 1e6},
    OptionRow{"isa", '\0', "NAME", &O::isa, kMachine, kEngine | kDoctor,
              "instruction set; auto: the best that all ranks have",
              "auto|scalar|avx2|avx512|avx512_bf16"},
    OptionRow{"memory-limit", '\0', "BYTES", &O::memory_limit, kMachine, kEngine | kDoctor,
              "memory of a node that may be used, such as 12G; auto: what system and cgroup leave"},

    OptionRow{"expert-replicas", '\0', "N", &O::expert_replicas, kRanks, kEngine,
              "copies of all experts; ranks / N ranks share one", "", 1, 1e6},
    OptionRow{"combine", '\0', "KIND", &O::combine, kRanks, kEngine,
              "exact: results of experts are summed at home, in one order on any number of ranks",
              "exact"},
    OptionRow{"transport", '\0', "KIND", &O::transport, kRanks, kEngine | kDoctor,
              "what moves rows inside a node; auto: shared memory", "auto|mpi|shm"},
    OptionRow{"timeout", '\0', "SECONDS", &O::timeout, kRanks, kAll,
              "longest wait for another rank before giving up", "", 1, 1e6},
    OptionRow{"check-comm", '\0', "", &O::check_comm, kRanks, kEngine | kDoctor,
              "check that all ranks make the same calls (slower)"},
    OptionRow{"ranks-per-node", '\0', "N", &O::ranks_per_node, kRanks, kEngine | kDoctor,
              "pretend that every N ranks are a node of their own; 0: ask the system", "", 0, 1e6},

    OptionRow{"json", '\0', "", &O::json, kProgram, kAll & ~kBench,
              "machine-readable lines on the standard output"},
    OptionRow{"logits-out", '\0', "FILE", &O::logits_out, kProgram, kScore,
              "write input_ids and logits of the whole text as safetensors"},
    OptionRow{"config", '\0', "FILE", &O::config, kProgram, kAll,
              "read options from lines `name = value`; # starts a comment"},
    OptionRow{"log-level", '\0', "LEVEL", &O::log_level, kProgram, kAll,
              "how much is told on the standard error output", "error|warning|info|debug"},
    OptionRow{.name = "show-config",
              .letter = '\0',
              .value = "",
              .field = &O::show_config,
              .group = kProgram,
              .verbs = kAll,
              .help = "print every option with its value and where that came from, and end",
              .flag_only = true},
    OptionRow{.name = "help",
              .letter = 'h',
              .value = "",
              .field = &O::help,
              .group = kProgram,
              .verbs = kAll,
              .help = "print this",
              .flag_only = true},
    OptionRow{.name = "version",
              .letter = '\0',
              .value = "",
              .field = &O::version,
              .group = kProgram,
              .verbs = kAll,
              .help = "print versions",
              .flag_only = true},
};

constexpr std::array kVerbs = {
    VerbRow{Verb::generate, "generate", "-m DIR -p TEXT | -f FILE", "continue prompts"},
    VerbRow{Verb::score, "score", "-m DIR -f FILE", "loss and perplexity of a text; raw logits"},
    VerbRow{Verb::tokenize, "tokenize", "-m DIR -p TEXT | -f FILE",
            "token ids and pieces of a text"},
    VerbRow{Verb::inspect, "inspect", "DIR", "what a checkpoint holds"},
    VerbRow{Verb::bench_model, "bench model", "-m DIR",
            "speed of prompt processing and generation"},
    VerbRow{Verb::doctor, "doctor", "", "what this machine, this MPI and this launch give"},
};

std::string print(bool value) {
  return value ? "true" : "false";
}
std::string print(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string print(double value) {
  return fmt::format("{}", value);
}
std::string print(const std::string& value) {
  return value;
}
std::string print(const std::optional<std::string>& value) {
  return value.value_or("");
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

}  // namespace

std::span<const OptionRow> option_table() noexcept {
  return kOptions;
}

std::span<const VerbRow> verb_table() noexcept {
  return kVerbs;
}

const VerbRow& verb_row(Verb verb) noexcept {
  return *std::find_if(kVerbs.begin(), kVerbs.end(),
                       [&](const VerbRow& row) { return row.verb == verb; });
}

bool takes(Verb verb, const OptionRow& row) noexcept {
  return (row.verbs & bit(verb)) != 0;
}

const OptionRow* find_option(std::string_view name) noexcept {
  for (const OptionRow& row : kOptions) {
    if (same_name(row.name, name)) return &row;
  }
  return nullptr;
}

std::string environment_name(const OptionRow& row) {
  std::string name = "MOESAIC_";
  for (const char c : row.name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string value_text(const OptionRow& row, const Options& options) {
  return std::visit([&](auto field) { return print(options.*field); }, row.field);
}

}  // namespace moesaic
