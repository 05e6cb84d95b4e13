#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

#include <array>
#include <vector>

namespace moesaic {
namespace {

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
    may_differ({"model", 'm', "DIR", &O::model, kModel, verbs::kFiles | verbs::kPlan,
                "Hugging Face checkpoint directory, or one that moesaic convert made"}),
    OptionRow{"precision", '\0', "TYPE", one_of<&O::precision>(), kModel,
              verbs::kEngine | verbs::kPlan,
              "activations, products and key-value cache; fp32 is slower, for checks"},
    OptionRow{"expert-format", '\0', "NAME", a_layout<&O::expert_format>(), kModel,
              verbs::kEngine | verbs::kConvert | verbs::kPlan,
              "how weights of routed experts are stored; auto: as the checkpoint has them. "
              "KTransformers' names (AMXINT4, RAWINT4, FP8, ...) are taken too"},
    OptionRow{"dense-format", '\0', "NAME", a_layout<&O::dense_format>(), kModel,
              verbs::kEngine | verbs::kConvert | verbs::kPlan,
              "the same for attention, shared experts and layers without experts"},
    OptionRow{"head-format", '\0', "NAME", a_layout<&O::head_format>(), kModel,
              verbs::kEngine | verbs::kConvert | verbs::kPlan,
              "the same for the output matrix, which is the most sensitive to rounding"},
    OptionRow{"nvfp4-activations", '\0', "TYPE", one_of<&O::nvfp4_activations>(), kModel,
              verbs::kEngine | verbs::kParts | verbs::kPlan,
              "what activations are rounded to before they meet weights in nvfp4; nvfp4: W4A4, "
              "which tensor cores of sm_120 and sm_121 multiply as it is; CPUs, and GPUs with "
              "portable numerics, multiply the same numbers in bf16"},
    OptionRow{"activation-scales", '\0', "WHENCE", one_of<&O::activation_scales>(), kModel,
              verbs::kEngine & ~(verbs::kSft | verbs::kBenchSft),
              "of activations in nvfp4 that meet experts. runtime: each token has its own; "
              "checkpoint: its input_scale, the largest of all experts of a layer"},
    OptionRow{
        "int4-activations", '\0', "TYPE", one_of<&O::int4_activations>(), kModel,
        verbs::kEngine | verbs::kParts | verbs::kPlan,
        "what activations are rounded to before they meet weights in int4_group128; int8: with "
        "a scale for each token and group, faster for several tokens at a time, less exact"},
    OptionRow{"numerics", '\0', "KIND", one_of<&O::numerics>(), kModel,
              verbs::kEngine | verbs::kParts | verbs::kDoctor,
              "portable: the same bits on every CPU; native: also instructions that sum in an "
              "order of their own, where they are the fastest"},
    OptionRow{
        "ctx-size", 'c', "N", &O::ctx_size, kModel,
        verbs::kTexts | verbs::kScore | verbs::kSft | verbs::kPlan,
        "most tokens of one sequence; 0: as many as the model was made for, of chat and serve as "
        "many of these as there is memory for",
        0, 1e12},

    OptionRow{"mmap", '\0', "", &O::mmap, kModel, verbs::kEngine | verbs::kPlan,
              "use the weights of a converted directory where they lie in the page cache, without "
              "copying them: starts at once, computes a little slower"},
    OptionRow{"verify", '\0', "", &O::verify, kModel, verbs::kEngine | verbs::kInspect,
              "compare the checksums of a converted directory; several ranks with a checkpoint: "
              "compare all bytes of it between them"},
    may_differ({"lora", '\0', "DIR", &O::lora, kModel,
                verbs::kEngine | verbs::kConvert | verbs::kInspect | verbs::kPlan,
                "a LoRA adapter of the model, as PEFT writes it; sft goes on from it, with its "
                "targets and ranks, and its layout unless another is told"}),

    OptionRow{"output", 'o', "OUTDIR", &O::output_dir, kConversion, verbs::kConvert,
              "directory to write; appears when it is complete"},
    OptionRow{"overwrite", '\0', "", &O::overwrite, kConversion, verbs::kConvert,
              "replace OUTDIR if it is there and was made by moesaic convert"},
    OptionRow{"shard-size", '\0', "BYTES", &O::shard_size, kConversion, verbs::kConvert,
              "fill files of weights up to this, such as 1G; auto: 4G. A conversion that was "
              "interrupted goes on after those that are whole"},
    OptionRow{"merge", '\0', "", &O::merge, kConversion, verbs::kConvert,
              "write the checkpoint with the adapter of --lora added to its weights, in bf16"},
    OptionRow{
        "adapter-layout", '\0', "NAME", one_of<&O::adapter_layout>(), kConversion, verbs::kConvert,
        "write the adapter of --lora again, with the modules of this version of transformers; "
        "auto: do not"},

    may_differ({"prompt", 'p', "TEXT", &O::prompt, kText, verbs::kGenerate | verbs::kTokenize,
                "one prompt"}),
    may_differ(
        {"file", 'f', "FILE", &O::file, kText, verbs::kGenerate | verbs::kTokenize,
         "prompts, one a line, or JSONL {\"prompt\": \"...\"}; - is the standard input, whose "
         "lines generate takes as they come"}),
    OptionRow{"whole-file", '\0', "", &O::whole_file, kText,
              verbs::kGenerate | verbs::kTokenize | verbs::kScore,
              "the whole of FILE is one prompt, or one text to score"},
    OptionRow{
        "strict", '\0', "", &O::strict, kText, verbs::kGenerate | verbs::kTokenize,
        "end before anything is run if a prompt of FILE is bad: too long, not UTF-8, with an "
        "unknown field; else it gets a line with \"error\" and the others run. Of the standard "
        "input, end where it comes"},
    may_differ({"file", 'f', "FILE", &O::files, kText, verbs::kScore,
                "a text, or JSONL: {\"text\": ...}, or {\"context\": ..., \"continuation\": ...} "
                "for the log-likelihood of the latter, as strings or arrays of token ids, or "
                "{\"input_ids\": ..., \"labels\": ...}, whose trained tokens count; may be given "
                "several times; - is the standard input"}),
    OptionRow{"stride", '\0', "N", &O::stride, kText, verbs::kScore,
              "a text longer than the context is scored in windows as long as the context, each N "
              "tokens after the one before; 0: half the context",
              0, 1e12},
    OptionRow{"no-window", '\0', "", &O::no_window, kText, verbs::kScore,
              "refuse texts longer than the context"},
    OptionRow{"no-display-prompt", '\0', "", &O::no_display_prompt, kText, verbs::kGenerate,
              "print the continuation alone, without the prompt before it"},
    OptionRow{"no-special", '\0', "", &O::no_special, kText, verbs::kTokenize,
              "leave out the special tokens that the tokenizer adds"},
    OptionRow{
        "chat", '\0', "", &O::chat, kText, verbs::kGenerate | verbs::kTokenize,
        "conversations, through the model's chat template: --prompt is a user's turn, lines of "
        "--file are {\"messages\": [...], \"tools\", \"chat_template_kwargs\"}; tokenize --json "
        "adds which tokens an assistant said"},
    may_differ({"chat-template", '\0', "FILE", &O::chat_template, kText,
                verbs::kTemplates | verbs::kSft,
                "a chat template (Jinja) instead of the model's own"}),
    OptionRow{"chat-template-kwargs", '\0', "JSON", &O::chat_template_kwargs, kText,
              verbs::kTemplates,
              "what the template may ask for besides, such as {\"enable_thinking\": false}"},

    also("sys",
         may_differ({"system-prompt", '\0', "TEXT", &O::system_prompt, kText, verbs::kTexts,
                     "what the model is told before the first question, of conversations that do "
                     "not say it themselves"})),
    OptionRow{"predict", 'n', "N", &O::answer_tokens, kConversation, verbs::kChat,
              "most tokens of an answer; -1: until it ends, or the context is full", -1, 1e12},
    may_be_empty(may_differ({"history", '\0', "FILE", &O::history, kConversation, verbs::kChat,
                             "where messages are kept for the arrow keys, in place of "
                             "~/.local/state/moesaic/chat_history; empty: nowhere"})),
    OptionRow{"color", '\0', "WHEN", one_of<&O::colour>(), kConversation, verbs::kChat,
              "of prompts and notes; auto: on a terminal, unless NO_COLOR is set"},

    OptionRow{"predict", 'n', "N", &O::predict, kGeneration, verbs::kGenerate | verbs::kPlan,
              "most tokens to generate for a prompt; -1: until the context is full", -1, 1e12},
    OptionRow{"temp", '\0', "T", &O::temp, kGeneration, verbs::kTexts,
              "temperature; 0 takes the likeliest token", 0, 1e6},
    OptionRow{"top-k", '\0', "K", &O::top_k, kGeneration, verbs::kTexts,
              "sample among the K likeliest tokens; 0 or -1: all", -1, 1e12},
    above_least({"top-p", '\0', "P", &O::top_p, kGeneration, verbs::kTexts,
                 "sample among the likeliest tokens that together reach P; 1: all", 0, 1}),
    OptionRow{"min-p", '\0', "P", &O::min_p, kGeneration, verbs::kTexts,
              "leave out tokens less likely than P times the likeliest; 0: none", 0, 1},
    OptionRow{"seed", 's', "N", &O::seed, kGeneration, verbs::kTexts,
              "of the random numbers; equal seeds give equal texts; -1: another one each time", -1,
              9e18},
    above_least(
        {"repeat-penalty", '\0', "X", &O::repeat_penalty, kGeneration, verbs::kTexts,
         "divide positive logits of tokens that prompt or text have, multiply negative ones; 1: "
         "none",
         0, 100}),
    OptionRow{"frequency-penalty", '\0', "X", &O::frequency_penalty, kGeneration, verbs::kTexts,
              "subtract X for each time that the text has the token", -100, 100},
    OptionRow{"presence-penalty", '\0', "X", &O::presence_penalty, kGeneration, verbs::kTexts,
              "subtract X once if the text has the token", -100, 100},
    OptionRow{"repeat-last-n", '\0', "N", &O::repeat_last_n, kGeneration, verbs::kTexts,
              "penalties look at the last N tokens; 0: at none, -1: at all", -1, 1e12},
    OptionRow{"logit-bias", 'l', "ID+X", &O::logit_bias, kGeneration, verbs::kTexts,
              "add X to the logit of a token, such as 15043+1, 15043-1 or 15043-inf; several times "
              "for several tokens"},
    OptionRow{"stop", 'r', "TEXT", &O::stop, kGeneration, verbs::kTexts,
              "end a text before TEXT; several times for several of them"},
    OptionRow{"num-return", '\0', "N", &O::num_return, kGeneration, verbs::kGenerate,
              "texts of each prompt, each with random numbers of its own", 1, 1e5},
    OptionRow{
        "logprobs", '\0', "K", &O::logprobs, kGeneration, verbs::kGenerate,
        "with --json or --out: log-probabilities of the new tokens, and of the K likeliest in "
        "their places; -1: none",
        -1, 1000},
    OptionRow{"ignore-eos", '\0', "", &O::ignore_eos, kGeneration, verbs::kTexts,
              "go on after an end-of-sequence token"},
    OptionRow{"parallel", '\0', "N", &O::parallel, kGeneration,
              verbs::kGenerate | verbs::kServe | verbs::kPlan,
              "sequences that a rank works on at a time", 1, 1e6},

    OptionRow{"seed", 's', "N", &O::seed, kBenchmark, verbs::kBenchModel | verbs::kBenchSft,
              "of the random tokens", 0, 9e18},
    OptionRow{"n-prompt", 'p', "LIST", &O::n_prompt, kBenchmark, verbs::kBenchModel,
              "prompt tokens of a rank (pp), with commas; 0: no such test", 0, kMostBenchTokens},
    OptionRow{"n-gen", 'n', "LIST", &O::n_gen, kBenchmark, verbs::kBenchModel,
              "generated tokens of a rank (tg), with commas; 0: no such test", 0, kMostBenchTokens},
    also("pg",
         OptionRow{"prompt-gen", '\0', "P,G", &O::prompt_and_gen, kBenchmark, verbs::kBenchModel,
                   "a prompt of P tokens and then G generated ones; several times for "
                   "several tests"}),
    may_differ(
        {"text", '\0', "FILE", &O::bench_text, kBenchmark, verbs::kBenchModel | verbs::kBenchSft,
         "feed the tokens of a text, over and over; random: random tokens, which choose other "
         "experts than texts do. Without it a text of the program's own, or random tokens "
         "if the model has no tokenizer"}),
    OptionRow{"repetitions", 'r', "N", &O::repetitions, kBenchmark,
              verbs::kBenchModel | verbs::kBenchSft, "runs of each test", 1, 1e6},
    OptionRow{"shapes", '\0', "LIST", &O::shapes, kBenchmark, verbs::kBenchKernels,
              "weight matrices, with commas: NxK, N results from K inputs, or a model, for its "
              "experts' gate (or up) and down: deepseek-v3, qwen3-30b, mixtral, granite; of "
              "attention QxKVxD"},
    OptionRow{
        "layer", '\0', "LIST", &O::layers, kBenchmark, verbs::kLayers,
        "layers, with commas: four numbers ExHxIxK or E,H,I,K (experts, hidden, "
        "intermediate, experts a token), or a model: deepseek-v3, qwen3-30b, mixtral, granite"},
    OptionRow{"formats", '\0', "LIST", &O::formats, kBenchmark, verbs::kParts,
              "formats of the weights, with commas: those that moesaic generate --help lists for "
              "experts, f32, or all (without f32)"},
    OptionRow{"rows", '\0', "LIST", &O::rows, kBenchmark, verbs::kBenchKernels,
              "rows of activations, with commas", 1, 1 << 20},
    OptionRow{
        "keys", '\0', "LIST", &O::keys, kBenchmark, verbs::kBenchKernels,
        "of --op attention: positions in the cache; of attention-backward: tokens of a sample; "
        "with commas",
        1, 1 << 20},
    OptionRow{"tokens", '\0', "LIST", &O::tokens, kBenchmark, verbs::kLayers,
              "tokens of each rank, with commas", 1, 1 << 20},
    OptionRow{"routing", '\0', "KIND", one_of<&O::routing>(), kBenchmark, verbs::kLayers,
              "even: every expert gets as many rows as the others; skewed: by Zipf's law, the n-th "
              "most popular is chosen 1/n as often as the first; both: one after the other; "
              "hot_rank: all that can be are of rank 0"},
    OptionRow{"seconds", '\0', "S", &O::seconds, kBenchmark, verbs::kTables,
              "for the runs of one line; there are at least two", 0, 3600},
    OptionRow{"seconds", '\0', "S", &O::seconds, kBenchmark, verbs::kDoctor,
              "half of it is for the runs of one figure of --measure; there are at least two (with "
              "0: one)",
              0, 3600},
    OptionRow{"footprint", '\0', "BYTES", &O::footprint, kBenchmark, verbs::kParts | verbs::kDoctor,
              "memory of a rank that weights rotate over, to be read from memory and not from a "
              "cache; at most a third of what is available"},
    OptionRow{
        "op",
        '\0',
        "NAME", one_of<&O::op>(), kBenchmark, verbs::kBenchKernels,
        "which product: of rows with weights; with transposed weights (the gradient of the "
        "rows); over the rows (the gradient of the weights; bf16 and f32, the results rotate); "
        "attention, of rows with a cache; or its gradients, of whole samples"},
    OptionRow{"rival", '\0', "NAME", one_of<&O::rival>(), kBenchmark, verbs::kBenchKernels,
              "what to measure besides"},
    OptionRow{"output", 'o', "FORM", one_of<&O::output>(), kBenchmark,
              verbs::kBenchModel | verbs::kBenchSft | verbs::kTables, "form of the results"},

    may_differ({"threads", 't', "N", &O::threads, kMachine,
                (verbs::kEngine & ~verbs::kBenchModel) | verbs::kBenchLayer | verbs::kConvert |
                    verbs::kInspect | verbs::kDoctor | verbs::kPlan,
                "threads of a rank; 0: its share of the cores it may use", 0, 4096}),
    OptionRow{"threads", 't', "LIST", &O::thread_counts, kMachine, verbs::kBenchModel,
              "threads of a rank, with commas (default: its share of the cores it may use)", 1,
              4096},
    may_differ({"threads", 't', "LIST", &O::thread_counts, kMachine, verbs::kBenchKernels,
                "threads, with commas (default: 1 and as many as there are cores)", 1, 4096}),
    OptionRow{"batch-size", 'b', "LIST", &O::batch_sizes, kMachine, verbs::kBenchModel,
              "most tokens that a rank processes at once, with commas", 1, 1e6},
    OptionRow{
        "batch-size", 'b', "N", &O::batch_size, kMachine,
        (verbs::kEngine & ~(verbs::kBenchModel | verbs::kSft | verbs::kBenchSft)) | verbs::kPlan,
        "most tokens that a rank processes at once; a longer prompt is cut into chunks, and "
        "each text that goes on has its token all the same",
        1, 1e6},
    OptionRow{"batch-size", 'b', "N", &O::batch_size, kMachine, verbs::kSft | verbs::kBenchSft,
              "most tokens that a rank processes at once; a longer sample stands alone, whole", 1,
              1e6},
    may_differ({"pin", '\0', "WHETHER", one_of<&O::pin>(), kMachine, verbs::kRanks,
                "keep each thread on a core of its own; auto: where a job has cores of its own"}),
    OptionRow{"print-binding", '\0', "", &O::print_binding, kMachine, verbs::kRanks,
              "tell on which cores the threads of each rank run"},
    OptionRow{"isa", '\0', "NAME", an_isa<false>(), kMachine,
              verbs::kEngine | verbs::kBenchLayer | verbs::kDoctor,
              "instruction set; auto: the best that all ranks have"},
    OptionRow{"isa", '\0', "NAME", an_isa<true>(), kMachine, verbs::kBenchKernels,
              "instruction set; auto: the best of this machine; all: a line for each"},
    may_differ(
        {"memory-limit", '\0', "BYTES", &O::memory_limit, kMachine,
         verbs::kEngine | verbs::kTables | verbs::kDoctor,
         "memory of a node that may be used, such as 12G; auto: what system and cgroup leave"}),

    OptionRow{"expert-replicas", '\0', "N", &O::expert_replicas, kRanks,
              verbs::kEngine | verbs::kBenchLayer | verbs::kPlan,
              "copies of all experts; ranks / N ranks share one", 1, 1e6},
    OptionRow{"transport", '\0', "KIND", one_of<&O::transport>(), kRanks,
              verbs::kEngine | verbs::kLayers | verbs::kDoctor | verbs::kPlan,
              "what moves rows inside a node; auto: shared memory, or MPI where that is refused; "
              "shm: shared memory, or an error, also where no two ranks share a node; nccl: as "
              "auto, but where all experts are on GPUs, one GPU a rank, rows of all nodes go from "
              "GPU to GPU"},
    OptionRow{"timeout", '\0', "SECONDS", &O::timeout, kRanks, verbs::kRanks,
              "longest wait for a rank since its last progress before giving up", 1, 1e6},
    OptionRow{"check-comm", '\0', "", &O::check_comm, kRanks,
              verbs::kEngine | verbs::kLayers | verbs::kDoctor,
              "check that all ranks make the same calls (slower)"},
    OptionRow{"ranks-per-node", '\0', "N", &O::ranks_per_node, kRanks,
              verbs::kEngine | verbs::kLayers | verbs::kDoctor,
              "pretend that every N ranks are a node of their own; 0: ask the system", 0, 1e6},

    OptionRow{"json", '\0', "", &O::json, kProgram,
              (verbs::kRanks & ~(verbs::kChat | verbs::kServe | verbs::kSft)) | verbs::kPlan,
              "machine-readable lines on the standard output"},
    may_differ({"out", '\0', "FILE", &O::out, kProgram, verbs::kGenerate,
                "write the texts to FILE, JSONL, each as soon as it and those before it are "
                "finished. If FILE is there from the same prompts, model and options, go on from "
                "there; FILE.stop, when somebody makes it, ends the run early, as --max-time "
                "does"}),
    OptionRow{"unordered", '\0', "", &O::unordered, kProgram, verbs::kGenerate,
              "write each text as soon as it is finished, not in the order of the prompts"},
    OptionRow{"max-time", '\0', "TIME", &O::max_time, kProgram,
              (verbs::kLong & ~verbs::kServe) | verbs::kStudyRun,
              "end after so long, such as 90s, 50m or 1h30m, with what is finished by then: after "
              "the step that is under way, with exit code 6. So do SIGINT, SIGTERM and SIGUSR1; a "
              "second signal ends at once"},
    may_differ({"logits-out", '\0', "FILE", &O::logits_out, kProgram, verbs::kScore,
                "write input_ids and logits of the one text as safetensors"}),
    may_differ({"logprobs-out", '\0', "FILE", &O::logprobs_out, kProgram, verbs::kScore,
                "write a line of JSON for each token: id, piece, logprob (natural), rank (1: the "
                "likeliest). If FILE is there from the same texts, model and options, go on from "
                "there"}),
    may_differ({"config", '\0', "FILE", &O::config, kProgram, verbs::kRanks | verbs::kPlan,
                "read options from lines `name = value`; # starts a comment; in double quotes "
                "stands a text "
                "of JSON, with \\\\ for a backslash"}),
    may_differ({"log-level", '\0', "LEVEL", one_of<&O::log_level>(), kProgram,
                verbs::kRanks | verbs::kWithoutRanks,
                "how much is told on the standard error output"}),
    flag_only({"show-config", '\0', "", &O::show_config, kProgram,
               verbs::kRanks | verbs::kWithoutRanks,
               "print every option with its value and where that came from, and end"}),
    flag_only(
        {"help", 'h', "", &O::help, kProgram, verbs::kRanks | verbs::kWithoutRanks, "print this"}),
    flag_only({"version", '\0', "", &O::version, kProgram, verbs::kRanks | verbs::kWithoutRanks,
               "print versions"}),
};

}  // namespace

std::span<const OptionRow> option_table() noexcept {
  static const std::vector<OptionRow> rows = [] {
    std::vector<OptionRow> all(kOptions.begin(), kOptions.end());
    all.insert(all.end(), exchange_rows().begin(), exchange_rows().end());
    all.insert(all.end(), gpu_rows().begin(), gpu_rows().end());
    all.insert(all.end(), sft_rows().begin(), sft_rows().end());
    all.insert(all.end(), plan_rows().begin(), plan_rows().end());
    all.insert(all.end(), serve_rows().begin(), serve_rows().end());
    all.insert(all.end(), study_rows().begin(), study_rows().end());
    return all;
  }();
  return rows;
}

}  // namespace moesaic
