#include "launch/options/option_table.h"

#include <array>
#include <vector>

namespace moesaic {
namespace {

constexpr std::uint32_t kChat = verb_bit(Verb::chat);
constexpr std::uint32_t kGenerate = verb_bit(Verb::generate);
constexpr std::uint32_t kScore = verb_bit(Verb::score);
constexpr std::uint32_t kConvert = verb_bit(Verb::convert);
constexpr std::uint32_t kTokenize = verb_bit(Verb::tokenize);
constexpr std::uint32_t kInspect = verb_bit(Verb::inspect);
constexpr std::uint32_t kBench = verb_bit(Verb::bench_model);
constexpr std::uint32_t kKernels = verb_bit(Verb::bench_kernels);
constexpr std::uint32_t kLayer = verb_bit(Verb::bench_layer);
constexpr std::uint32_t kExchange = verb_bit(Verb::bench_exchange);
constexpr std::uint32_t kDoctor = verb_bit(Verb::doctor);
constexpr std::uint32_t kSft = verb_bit(Verb::sft);
constexpr std::uint32_t kPlan = verb_bit(Verb::plan);  // of the verbs whose work it plans
constexpr std::uint32_t kBenchSft = verb_bit(Verb::bench_sft);
constexpr std::uint32_t kPoint = verb_bit(Verb::study_point);
constexpr std::uint32_t kStudyRun = verb_bit(Verb::study_run);
constexpr std::uint32_t kTexts = kChat | kGenerate;  // verbs that write texts
constexpr std::uint32_t kEngine =
    kTexts | kScore | kBench | kSft | kBenchSft | kPoint;  // verbs that run a model
constexpr std::uint32_t kParts = kKernels | kLayer;        // verbs that run parts without a model
constexpr std::uint32_t kLayers = kLayer | kExchange;      // that run one of a given shape
constexpr std::uint32_t kTables = kParts | kExchange;      // whose lines take --seconds
constexpr std::uint32_t kFiles = kEngine | kConvert | kTokenize | kInspect;  // that read a model
constexpr std::uint32_t kLong = kEngine | kConvert | kTables;  // that can be interrupted
constexpr std::uint32_t kChats = kTexts | kTokenize;           // that know chat templates
constexpr std::uint32_t kAll = kFiles | kTables | kDoctor;
constexpr std::uint32_t kAlone = kVerbsWithoutRanks;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kConversion = "Conversion";
constexpr std::string_view kText = "Text";
constexpr std::string_view kConversation = "Conversation";
constexpr std::string_view kGeneration = "Generation";
constexpr std::string_view kBenchmark = "Benchmark";
constexpr std::string_view kMachine = "Machine";
constexpr std::string_view kRanks = "Ranks";
constexpr std::string_view kProgram = "Program";

using O = Options;

constexpr OptionRow may_differ(OptionRow row) {
  row.may_differ = true;
  return row;
}

constexpr OptionRow flag_only(OptionRow row) {
  row.flag_only = true;
  return row;
}

constexpr OptionRow above_least(OptionRow row) {
  row.is_above_least = true;
  return row;
}

constexpr OptionRow may_be_empty(OptionRow row) {
  row.may_be_empty = true;
  return row;
}

constexpr OptionRow also(std::string_view alias, OptionRow row) {
  row.alias = alias;
  return row;
}

constexpr std::array kOptions = {
    may_differ({"model", 'm', "DIR", &O::model, kModel, kFiles | kPlan,
                "Hugging Face checkpoint directory, or one that moesaic convert made"}),
    OptionRow{"precision", '\0', "TYPE", one_of<&O::precision>(), kModel, kEngine | kPlan,
              "activations, products and key-value cache; fp32 is slower, for checks"},
    OptionRow{"expert-format", '\0', "NAME", a_layout<&O::expert_format>(), kModel,
              kEngine | kConvert | kPlan,
              "how weights of routed experts are stored; auto: as the checkpoint has them. "
              "KTransformers' names (AMXINT4, RAWINT4, FP8, ...) are taken too"},
    OptionRow{"dense-format", '\0', "NAME", a_layout<&O::dense_format>(), kModel,
              kEngine | kConvert | kPlan,
              "the same for attention, shared experts and layers without experts"},
    OptionRow{"head-format", '\0', "NAME", a_layout<&O::head_format>(), kModel,
              kEngine | kConvert | kPlan,
              "the same for the output matrix, which is the most sensitive to rounding"},
    OptionRow{"nvfp4-activations", '\0', "TYPE", one_of<&O::nvfp4_activations>(), kModel,
              kEngine | kParts | kPlan,
              "what activations are rounded to before they meet weights in nvfp4; nvfp4: W4A4, "
              "which tensor cores of sm_120 and sm_121 multiply as it is; CPUs, and GPUs with "
              "portable numerics, multiply the same numbers in bf16"},
    OptionRow{"activation-scales", '\0', "WHENCE", one_of<&O::activation_scales>(), kModel,
              kEngine & ~(kSft | kBenchSft),
              "of activations in nvfp4 that meet experts. runtime: each token has its own; "
              "checkpoint: its input_scale, the largest of all experts of a layer"},
    OptionRow{
        "int4-activations", '\0', "TYPE", one_of<&O::int4_activations>(), kModel,
        kEngine | kParts | kPlan,
        "what activations are rounded to before they meet weights in int4_group128; int8: with "
        "a scale for each token and group, faster for several tokens at a time, less exact"},
    OptionRow{"numerics", '\0', "KIND", one_of<&O::numerics>(), kModel, kEngine | kParts | kDoctor,
              "portable: the same bits on every CPU; native: also instructions that sum in an "
              "order of their own, where they are the fastest"},
    OptionRow{
        "ctx-size", 'c', "N", &O::ctx_size, kModel, kTexts | kScore | kSft | kPlan,
        "most tokens of one sequence; 0: as many as the model was made for, of chat as many of "
        "these as there is memory for",
        0, 1e12},

    OptionRow{"mmap", '\0', "", &O::mmap, kModel, kEngine | kPlan,
              "use the weights of a converted directory where they lie in the page cache, without "
              "copying them: starts at once, computes a little slower"},
    OptionRow{"verify", '\0', "", &O::verify, kModel, kEngine | kInspect,
              "compare the checksums of a converted directory; several ranks with a checkpoint: "
              "compare all bytes of it between them"},
    may_differ({"lora", '\0', "DIR", &O::lora, kModel, kEngine | kConvert | kInspect | kPlan,
                "a LoRA adapter of the model, as PEFT writes it; sft goes on from it, with its "
                "targets, ranks and layout"}),

    OptionRow{"output", 'o', "OUTDIR", &O::output_dir, kConversion, kConvert,
              "directory to write; appears when it is complete"},
    OptionRow{"overwrite", '\0', "", &O::overwrite, kConversion, kConvert,
              "replace OUTDIR if it is there and was made by moesaic convert"},
    OptionRow{"shard-size", '\0', "BYTES", &O::shard_size, kConversion, kConvert,
              "fill files of weights up to this, such as 1G; auto: 4G. A conversion that was "
              "interrupted goes on after those that are whole"},
    OptionRow{"merge", '\0', "", &O::merge, kConversion, kConvert,
              "write the checkpoint with the adapter of --lora added to its weights, in bf16"},
    OptionRow{
        "adapter-layout", '\0', "NAME", one_of<&O::adapter_layout>(), kConversion, kConvert,
        "write the adapter of --lora again, with the modules of this version of transformers; "
        "auto: do not"},

    may_differ({"prompt", 'p', "TEXT", &O::prompt, kText, kGenerate | kTokenize, "one prompt"}),
    may_differ(
        {"file", 'f', "FILE", &O::file, kText, kGenerate | kTokenize,
         "prompts, one a line, or JSONL {\"prompt\": \"...\"}; - is the standard input, whose "
         "lines generate takes as they come"}),
    OptionRow{"whole-file", '\0', "", &O::whole_file, kText, kGenerate | kTokenize,
              "the whole of FILE is one prompt"},
    OptionRow{
        "strict", '\0', "", &O::strict, kText, kGenerate,
        "end before anything is run if a prompt of FILE is bad: too long, not UTF-8, with an "
        "unknown field; else it gets a line with \"error\" and the others run. Of the standard "
        "input, end where it comes"},
    may_differ({"file", 'f', "FILE", &O::files, kText, kScore,
                "a text, or JSONL: {\"text\": ...}, or {\"context\": ..., \"continuation\": ...} "
                "for the log-likelihood of the latter, as strings or arrays of token ids; may be "
                "given several times; - is the standard input"}),
    OptionRow{"stride", '\0', "N", &O::stride, kText, kScore,
              "a text longer than the context is scored in windows as long as the context, each N "
              "tokens after the one before; 0: half the context",
              0, 1e12},
    OptionRow{"no-window", '\0', "", &O::no_window, kText, kScore,
              "refuse texts longer than the context"},
    OptionRow{"no-display-prompt", '\0', "", &O::no_display_prompt, kText, kGenerate,
              "print the continuation alone, without the prompt before it"},
    OptionRow{"no-special", '\0', "", &O::no_special, kText, kTokenize,
              "leave out the special tokens that the tokenizer adds"},
    OptionRow{
        "chat", '\0', "", &O::chat, kText, kGenerate | kTokenize,
        "conversations, through the model's chat template: --prompt is a user's turn, lines of "
        "--file are {\"messages\": [...], \"tools\", \"chat_template_kwargs\"}; tokenize --json "
        "adds which tokens an assistant said"},
    may_differ({"chat-template", '\0', "FILE", &O::chat_template, kText, kChats | kSft,
                "a chat template (Jinja) instead of the model's own"}),
    OptionRow{"chat-template-kwargs", '\0', "JSON", &O::chat_template_kwargs, kText, kChats,
              "what the template may ask for besides, such as {\"enable_thinking\": false}"},

    also("sys",
         may_differ({"system-prompt", '\0', "TEXT", &O::system_prompt, kText, kTexts,
                     "what the model is told before the first question, of conversations that do "
                     "not say it themselves"})),
    OptionRow{"predict", 'n', "N", &O::answer_tokens, kConversation, kChat,
              "most tokens of an answer; -1: until it ends, or the context is full", -1, 1e12},
    may_be_empty(may_differ({"history", '\0', "FILE", &O::history, kConversation, kChat,
                             "where messages are kept for the arrow keys, in place of "
                             "~/.local/state/moesaic/chat_history; empty: nowhere"})),
    OptionRow{"color", '\0', "WHEN", one_of<&O::colour>(), kConversation, kChat,
              "of prompts and notes; auto: on a terminal, unless NO_COLOR is set"},

    OptionRow{"predict", 'n', "N", &O::predict, kGeneration, kGenerate | kPlan,
              "most tokens to generate for a prompt; -1: until the context is full", -1, 1e12},
    OptionRow{"temp", '\0', "T", &O::temp, kGeneration, kTexts,
              "temperature; 0 takes the likeliest token", 0, 1e6},
    OptionRow{"top-k", '\0', "K", &O::top_k, kGeneration, kTexts,
              "sample among the K likeliest tokens; 0 or -1: all", -1, 1e12},
    above_least({"top-p", '\0', "P", &O::top_p, kGeneration, kTexts,
                 "sample among the likeliest tokens that together reach P; 1: all", 0, 1}),
    OptionRow{"min-p", '\0', "P", &O::min_p, kGeneration, kTexts,
              "leave out tokens less likely than P times the likeliest; 0: none", 0, 1},
    OptionRow{"seed", 's', "N", &O::seed, kGeneration, kTexts,
              "of the random numbers; equal seeds give equal texts; -1: another one each time", -1,
              9e18},
    above_least(
        {"repeat-penalty", '\0', "X", &O::repeat_penalty, kGeneration, kTexts,
         "divide positive logits of tokens that prompt or text have, multiply negative ones; 1: "
         "none",
         0, 100}),
    OptionRow{"frequency-penalty", '\0', "X", &O::frequency_penalty, kGeneration, kTexts,
              "subtract X for each time that the text has the token", -100, 100},
    OptionRow{"presence-penalty", '\0', "X", &O::presence_penalty, kGeneration, kTexts,
              "subtract X once if the text has the token", -100, 100},
    OptionRow{"repeat-last-n", '\0', "N", &O::repeat_last_n, kGeneration, kTexts,
              "penalties look at the last N tokens; 0: at none, -1: at all", -1, 1e12},
    OptionRow{"logit-bias", 'l', "ID+X", &O::logit_bias, kGeneration, kTexts,
              "add X to the logit of a token, such as 15043+1, 15043-1 or 15043-inf; several times "
              "for several tokens"},
    OptionRow{"stop", 'r', "TEXT", &O::stop, kGeneration, kTexts,
              "end a text before TEXT; several times for several of them"},
    OptionRow{"num-return", '\0', "N", &O::num_return, kGeneration, kGenerate,
              "texts of each prompt, each with random numbers of its own", 1, 1e5},
    OptionRow{"logprobs", '\0', "K", &O::logprobs, kGeneration, kGenerate,
              "with --json: log-probabilities of the new tokens, and of the K likeliest in their "
              "places; -1: none",
              -1, 1000},
    OptionRow{"ignore-eos", '\0', "", &O::ignore_eos, kGeneration, kTexts,
              "go on after an end-of-sequence token"},
    OptionRow{"parallel", '\0', "N", &O::parallel, kGeneration, kGenerate | kPlan,
              "sequences that a rank works on at a time", 1, 1e6},

    OptionRow{"seed", 's', "N", &O::seed, kBenchmark, kBench | kBenchSft, "of the random tokens", 0,
              9e18},
    OptionRow{"n-prompt", 'p', "LIST", &O::n_prompt, kBenchmark, kBench,
              "prompt tokens of a rank (pp), with commas; 0: no such test", 0, kMostBenchTokens},
    OptionRow{"n-gen", 'n', "LIST", &O::n_gen, kBenchmark, kBench,
              "generated tokens of a rank (tg), with commas; 0: no such test", 0, kMostBenchTokens},
    also("pg", OptionRow{"prompt-gen", '\0', "P,G", &O::prompt_and_gen, kBenchmark, kBench,
                         "a prompt of P tokens and then G generated ones; several times for "
                         "several tests"}),
    may_differ({"text", '\0', "FILE", &O::bench_text, kBenchmark, kBench | kBenchSft,
                "feed the tokens of a text, over and over, rather than random ones: experts are "
                "chosen as texts choose them"}),
    OptionRow{"repetitions", 'r', "N", &O::repetitions, kBenchmark, kBench | kBenchSft,
              "runs of each test", 1, 1e6},
    OptionRow{"shapes", '\0', "LIST", &O::shapes, kBenchmark, kKernels,
              "weight matrices, with commas: NxK, N results from K inputs, or a model, for its "
              "experts' gate (or up) and down: deepseek-v3, qwen3-30b, mixtral, granite; of "
              "attention QxKVxD"},
    OptionRow{"layer", '\0', "LIST", &O::layers, kBenchmark, kLayers,
              "layers, with commas: four numbers (experts, hidden, intermediate, experts a token), "
              "or a model: deepseek-v3, qwen3-30b, mixtral, granite"},
    OptionRow{"formats", '\0', "LIST", &O::formats, kBenchmark, kParts,
              "formats of the weights, with commas: those that moesaic generate --help lists for "
              "experts, f32, or all (without f32)"},
    OptionRow{"rows", '\0', "LIST", &O::rows, kBenchmark, kKernels,
              "rows of activations, with commas", 1, 1 << 20},
    OptionRow{
        "keys", '\0', "LIST", &O::keys, kBenchmark, kKernels,
        "of --op attention: positions in the cache; of attention-backward: tokens of a sample; "
        "with commas",
        1, 1 << 20},
    OptionRow{"tokens", '\0', "LIST", &O::tokens, kBenchmark, kLayers,
              "tokens of each rank, with commas", 1, 1 << 20},
    OptionRow{"routing", '\0', "KIND", one_of<&O::routing>(), kBenchmark, kLayers,
              "even: every expert gets as many rows as the others; skewed: by Zipf's law, the n-th "
              "most popular is chosen 1/n as often as the first; both: one after the other; "
              "hot_rank: all that can be are of rank 0"},
    OptionRow{"seconds", '\0', "S", &O::seconds, kBenchmark, kTables,
              "for the runs of one line; there are at least two", 0, 3600},
    OptionRow{"seconds", '\0', "S", &O::seconds, kBenchmark, kDoctor,
              "half of it is for the runs of one figure of --measure; there are at least two", 0,
              3600},
    OptionRow{"footprint", '\0', "BYTES", &O::footprint, kBenchmark, kParts | kDoctor,
              "memory of a rank that weights rotate over, to be read from memory and not from a "
              "cache; at most a third of what is available"},
    OptionRow{
        "op",
        '\0',
        "NAME", one_of<&O::op>(), kBenchmark, kKernels,
        "which product: of rows with weights; with transposed weights (the gradient of the "
        "rows); over the rows (the gradient of the weights; bf16 and f32, the results rotate); "
        "attention, of rows with a cache; or its gradients, of whole samples"},
    OptionRow{"rival", '\0', "NAME", one_of<&O::rival>(), kBenchmark, kKernels,
              "what to measure besides"},
    OptionRow{"output", 'o', "FORM", one_of<&O::output>(), kBenchmark, kBench | kBenchSft | kTables,
              "form of the results"},

    may_differ({"threads", 't', "N", &O::threads, kMachine,
                (kEngine & ~kBench) | kLayer | kConvert | kInspect | kDoctor | kPlan,
                "threads of a rank; 0: its share of the cores it may use", 0, 4096}),
    OptionRow{"threads", 't', "LIST", &O::thread_counts, kMachine, kBench,
              "threads of a rank, with commas (default: its share of the cores it may use)", 1,
              4096},
    may_differ({"threads", 't', "LIST", &O::thread_counts, kMachine, kKernels,
                "threads, with commas (default: 1 and as many as there are cores)", 1, 4096}),
    OptionRow{"batch-size", 'b', "LIST", &O::batch_sizes, kMachine, kBench,
              "most tokens that a rank processes at once, with commas", 1, 1e6},
    OptionRow{"batch-size", 'b', "N", &O::batch_size, kMachine,
              (kEngine & ~(kBench | kSft | kBenchSft)) | kPlan,
              "most tokens that a rank processes at once; a longer prompt is cut into chunks, and "
              "each text that goes on has its token all the same",
              1, 1e6},
    OptionRow{"batch-size", 'b', "N", &O::batch_size, kMachine, kSft | kBenchSft,
              "most tokens that a rank processes at once; a longer sample stands alone, whole", 1,
              1e6},
    may_differ({"pin", '\0', "WHETHER", one_of<&O::pin>(), kMachine, kAll,
                "keep each thread on a core of its own; auto: where a job has cores of its own"}),
    OptionRow{"print-binding", '\0', "", &O::print_binding, kMachine, kAll,
              "tell on which cores the threads of each rank run"},
    OptionRow{"isa", '\0', "NAME", an_isa<false>(), kMachine, kEngine | kLayer | kDoctor,
              "instruction set; auto: the best that all ranks have"},
    OptionRow{"isa", '\0', "NAME", an_isa<true>(), kMachine, kKernels,
              "instruction set; auto: the best of this machine; all: a line for each"},
    may_differ(
        {"memory-limit", '\0', "BYTES", &O::memory_limit, kMachine, kEngine | kTables | kDoctor,
         "memory of a node that may be used, such as 12G; auto: what system and cgroup leave"}),

    OptionRow{"expert-replicas", '\0', "N", &O::expert_replicas, kRanks, kEngine | kLayer | kPlan,
              "copies of all experts; ranks / N ranks share one", 1, 1e6},
    OptionRow{"transport", '\0', "KIND", one_of<&O::transport>(), kRanks,
              kEngine | kLayers | kDoctor | kPlan,
              "what moves rows inside a node; auto: shared memory, or MPI where that is refused; "
              "nccl: as auto, but where all experts are on GPUs, one GPU a rank, rows of all nodes "
              "go from GPU to GPU"},
    OptionRow{"timeout", '\0', "SECONDS", &O::timeout, kRanks, kAll,
              "longest wait for a rank since its last progress before giving up", 1, 1e6},
    OptionRow{"check-comm", '\0', "", &O::check_comm, kRanks, kEngine | kLayers | kDoctor,
              "check that all ranks make the same calls (slower)"},
    OptionRow{"ranks-per-node", '\0', "N", &O::ranks_per_node, kRanks, kEngine | kLayers | kDoctor,
              "pretend that every N ranks are a node of their own; 0: ask the system", 0, 1e6},

    OptionRow{"json", '\0', "", &O::json, kProgram, (kAll & ~(kChat | kSft)) | kPlan,
              "machine-readable lines on the standard output"},
    may_differ({"out", '\0', "FILE", &O::out, kProgram, kGenerate,
                "write the texts to FILE, JSONL, each as soon as it and those before it are "
                "finished. If FILE is there from the same prompts, model and options, go on from "
                "there; FILE.stop, when somebody makes it, ends the run early, as --max-time "
                "does"}),
    OptionRow{"unordered", '\0', "", &O::unordered, kProgram, kGenerate,
              "write each text as soon as it is finished, not in the order of the prompts"},
    OptionRow{"max-time", '\0', "TIME", &O::max_time, kProgram, kLong | kStudyRun,
              "end after so long, such as 90s, 50m or 1h30m, with what is finished by then: after "
              "the step that is under way, with exit code 6. So do SIGINT, SIGTERM and SIGUSR1; a "
              "second signal ends at once"},
    may_differ({"logits-out", '\0', "FILE", &O::logits_out, kProgram, kScore,
                "write input_ids and logits of the one text as safetensors"}),
    may_differ({"logprobs-out", '\0', "FILE", &O::logprobs_out, kProgram, kScore,
                "write a line of JSON for each token: id, piece, logprob (natural), rank (1: the "
                "likeliest). If FILE is there from the same texts, model and options, go on from "
                "there"}),
    may_differ({"config", '\0', "FILE", &O::config, kProgram, kAll | kPlan,
                "read options from lines `name = value`; # starts a comment"}),
    may_differ({"log-level", '\0', "LEVEL", one_of<&O::log_level>(), kProgram, kAll | kAlone,
                "how much is told on the standard error output"}),
    flag_only({"show-config", '\0', "", &O::show_config, kProgram, kAll | kAlone,
               "print every option with its value and where that came from, and end"}),
    flag_only({"help", 'h', "", &O::help, kProgram, kAll | kAlone, "print this"}),
    flag_only({"version", '\0', "", &O::version, kProgram, kAll | kAlone, "print versions"}),
};

}  // namespace

std::span<const OptionRow> option_table() noexcept {
  static const std::vector<OptionRow> rows = [] {
    std::vector<OptionRow> all(kOptions.begin(), kOptions.end());
    all.insert(all.end(), exchange_rows().begin(), exchange_rows().end());
    all.insert(all.end(), gpu_rows().begin(), gpu_rows().end());
    all.insert(all.end(), sft_rows().begin(), sft_rows().end());
    all.insert(all.end(), plan_rows().begin(), plan_rows().end());
    all.insert(all.end(), study_rows().begin(), study_rows().end());
    return all;
  }();
  return rows;
}

}  // namespace moesaic
