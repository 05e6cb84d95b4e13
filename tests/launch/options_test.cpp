#include "launch/options/options.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "launch/options/nearest_name.h"
#include "launch/options/option_help.h"
#include "launch/options/shell_word.h"
#include "src/model/weight_layout.h"
#include "tests/launch/parsed_command.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::parse;

std::string usage_error(const std::vector<std::string>& arguments,
                        const Environment& environment = {}) {
  return test::error_message([&] { parse(arguments, environment); }, ErrorKind::usage);
}

TEST(Options, DefaultsAreThoseOfTheStruct) {
  const Command command = parse({"generate"});
  EXPECT_EQ(command.verb, Verb::generate);
  EXPECT_EQ(command.options.predict, 128);
  EXPECT_EQ(command.options.temp, 0.8);
  EXPECT_FALSE(command.options.prompt.has_value());
}

TEST(Options, TakesLongShortAdjacentAndWordForms) {
  EXPECT_EQ(parse({"generate", "--predict", "5"}).options.predict, 5);
  EXPECT_EQ(parse({"generate", "--predict=5"}).options.predict, 5);
  EXPECT_EQ(parse({"generate", "-n", "5"}).options.predict, 5);
  EXPECT_EQ(parse({"generate", "-n5"}).options.predict, 5);
  EXPECT_EQ(parse({"generate", "predict=5"}).options.predict, 5);
  EXPECT_EQ(parse({"generate", "top_k=5"}).options.top_k, 5);
  EXPECT_TRUE(parse({"generate", "--json"}).options.json);
  EXPECT_FALSE(parse({"generate", "--json=false"}).options.json);
}

TEST(Options, SwitchDoesNotSwallowWhatFollows) {
  const Command command = parse({"generate", "--json", "-p", "x"});
  EXPECT_TRUE(command.options.json);
  EXPECT_EQ(command.options.prompt, "x");
  const Command inspect = parse({"inspect", "--json", "some/dir"});
  EXPECT_TRUE(inspect.options.json);
  EXPECT_EQ(inspect.options.model, "some/dir");
  EXPECT_EQ(parse({"generate", "--json", "temp=0"}).options.temp, 0);
}

TEST(Options, EmptyAndDashedPromptsArePrompts) {
  EXPECT_EQ(parse({"generate", "-p", ""}).options.prompt, "");
  EXPECT_EQ(parse({"generate", "-p", "- a dash"}).options.prompt, "- a dash");
  EXPECT_EQ(parse({"generate", "-p", "key=value"}).options.prompt, "key=value");
}

TEST(Options, EmptyNamesOfFilesAreRefused) {
  EXPECT_EQ(usage_error({"generate", "-f", ""}), "--file: \"\" names no file");
  EXPECT_EQ(usage_error({"score", "-f", "a", "-f", ""}), "--file: \"\" names no file");
  EXPECT_EQ(usage_error({"sft", "--data", ""}), "--data: \"\" names no file");
  EXPECT_EQ(usage_error({"generate", "--config", ""}), "--config: \"\" names no file");
  EXPECT_EQ(usage_error({"generate", "lora="}), "lora: \"\" names no directory");
  EXPECT_EQ(usage_error({"sft"}, {{"MOESAIC_DATA", ""}}), "MOESAIC_DATA: \"\" names no file");
  EXPECT_EQ(parse({"chat", "--history", ""}).options.history, "") << "means that there is none";
}

TEST(Options, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, "# a comment\ntop-k = 1\ntop_p = 0.5\npredict = 7  # seven\n");
  const Environment environment = {{"MOESAIC_TOP_K", "2"}, {"MOESAIC_PREDICT", "8"}};
  const Command command = parse({"generate", "--config", file, "--predict", "9"}, environment);
  EXPECT_EQ(command.options.predict, 9);
  EXPECT_EQ(command.options.top_k, 2);
  EXPECT_EQ(command.options.top_p, 0.5);
  EXPECT_EQ(command.options.temp, 0.8);

  const std::string shown = config_text(command);
  EXPECT_NE(shown.find("predict = 9"), std::string::npos);
  const std::size_t line = shown.find("top-p = 0.5");
  ASSERT_NE(line, std::string::npos);
  EXPECT_NE(shown.find("# file", line), std::string::npos);
}

TEST(Options, ConfigFileComesFromTheEnvironmentToo) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, "threads=3\n");
  EXPECT_EQ(parse({"score"}, {{"MOESAIC_CONFIG", file}}).options.threads, 3);
}

TEST(Options, ShownConfigReadsBackAsConfigFile) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  const Command first = parse({"generate", "-m", "some/dir", "-n", "3", "--temp", "0.25"});
  test::write_text(file, config_text(first));
  const Command second = parse({"generate", "--config", file});
  EXPECT_EQ(second.options.model, "some/dir");
  EXPECT_EQ(second.options.predict, 3);
  EXPECT_EQ(second.options.temp, 0.25);
}

TEST(Options, ShownConfigKeepsAValueThatIsGivenAsNothing) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  const Command given = parse({"generate", "--system-prompt", ""});
  const std::string shown = config_text(given);
  EXPECT_NE(shown.find("\nsystem-prompt = \"\" "), std::string::npos) << shown;
  EXPECT_NE(shown.find("\n# lora =  "), std::string::npos) << shown;
  test::write_text(file, shown);
  EXPECT_EQ(parse({"generate", "--config", file}).options.system_prompt, "");
  EXPECT_EQ(parse({"generate", "--config", file}).options.lora, std::nullopt);
}

TEST(Options, LaterFlagWins) {
  EXPECT_EQ(parse({"generate", "-n", "1", "-n", "2"}).options.predict, 2);
}

TEST(Options, TextsAndFilesAreNotDroppedSilently) {
  EXPECT_EQ(usage_error({"generate", "-p", "a", "-p", "b"}),
            "\"a\" and \"b\": there can be one --prompt");
  EXPECT_EQ(usage_error({"generate", "-f", "a", "--file", "b"}),
            "\"a\" and \"b\": there can be one --file");
  EXPECT_EQ(parse({"score", "-f", "a", "--file", "b"}).options.files,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(usage_error({"inspect", "a", "b"}), "\"a\" and \"b\": there can be one --model");
}

TEST(Options, WhatIsOnlyAFlagIsNotHintedAtItself) {
  EXPECT_EQ(usage_error({"generate", "config=run.ini"}),
            "\"config=run.ini\": config can only be given as the flag --config");
  EXPECT_EQ(usage_error({"generate", "help=1"}),
            "\"help=1\": help can only be given as the flag --help");
}

TEST(Options, OptionsOfOtherVerbsAreIgnoredInFileAndEnvironment) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, "n-gen = 3\n");
  const Command command = parse({"tokenize", "--config", file}, {{"MOESAIC_REPETITIONS", "2"}});
  EXPECT_EQ(command.options.repetitions, 5);
  EXPECT_TRUE(command.notes.empty());
}

TEST(Options, UnknownFlagIsNamedWithTheNearest) {
  EXPECT_EQ(usage_error({"generate", "--tpo-k", "3"}),
            "unknown option --tpo-k; did you mean --top-k?");
  EXPECT_EQ(usage_error({"generate", "--zzzzzzzz"}), "unknown option --zzzzzzzz");
  for (const char* verb : {"chat", "sft"}) {  // these print nothing that a program reads
    EXPECT_TRUE(usage_error({verb, "--json"})
                    .starts_with(std::string("--json is no option of moesaic ") + verb));
  }
  EXPECT_EQ(usage_error({"generate", "--resume"}),
            "--resume is no option of moesaic generate; it is one of sft, and what --out or "
            "--logprobs-out names goes on by itself");
  EXPECT_EQ(usage_error({"generate", "tempp=1"}),
            "unknown option \"tempp\" in \"tempp=1\"; did you mean temp?");
  EXPECT_EQ(usage_error({"generate", "n=1"}),
            "unknown option \"n\" in \"n=1\"; it is predict here");
}

TEST(Options, AnOptionOfOtherVerbsIsToldWithThese) {
  EXPECT_EQ(usage_error({"generate", "--epochs", "3"}),
            "--epochs is no option of moesaic generate; it is one of sft");
  EXPECT_EQ(usage_error({"sft", "-n", "3"}),
            "-n (--predict) is no option of moesaic sft; it is one of chat, generate, plan");
  EXPECT_EQ(usage_error({"score", "parallel=3"}),
            "parallel is no option of moesaic score; it is one of generate, serve, plan");
  EXPECT_EQ(usage_error({"generate", "--ranks", "3"}),
            "--ranks is no option of moesaic generate; it is one of plan, study predict, study "
            "export smpi");
  const std::string many = usage_error({"sft", "--json"});
  EXPECT_TRUE(
      many.starts_with("--json is no option of moesaic sft; it is one of generate, score, "
                       "tokenize and "))
      << many;
  EXPECT_TRUE(many.ends_with(" others")) << many;
}

TEST(Options, BadValuesNameFlagAndValue) {
  EXPECT_EQ(usage_error({"generate", "--top-k", "many"}),
            "--top-k: \"many\" is not a whole number");
  EXPECT_EQ(usage_error({"generate", "--top-k", "3.5"}), "--top-k: \"3.5\" is not a whole number");
  EXPECT_EQ(usage_error({"generate", "--top-p", "1.5"}), "--top-p: 1.5 is more than 1");
  EXPECT_EQ(usage_error({"generate", "-n", "-2"}), "--predict: -2 is less than -1");
  EXPECT_EQ(usage_error({"generate", "--temp", "nan"}), "--temp: \"nan\" is not a number");
  EXPECT_EQ(usage_error({"generate", "--precision", "fp23"}),
            "--precision: \"fp23\" is not one of bf16, fp32; did you mean fp32?");
  EXPECT_EQ(usage_error({"generate", "--memory-limit", "12Q"}),
            "--memory-limit: \"12Q\" is not a number of bytes such as 800M or 12G");
  EXPECT_EQ(usage_error({"convert", "--max-time", "12w"}),
            "--max-time: \"12w\" is not a length of time such as 90s, 50m or 1h30m");
  EXPECT_EQ(usage_error({"generate"}, {{"MOESAIC_TOP_K", "x"}}),
            "MOESAIC_TOP_K: \"x\" is not a whole number");
}

TEST(Options, NumbersBeyondItsOwnAreToldAsSuch) {
  EXPECT_EQ(usage_error({"generate", "--seed", "18446744073709551615"}),
            "--seed: 18446744073709551615 is beyond what this program counts");
  EXPECT_EQ(usage_error({"generate", "--top-k", "99999999999999999999"}),
            "--top-k: 99999999999999999999 is beyond what this program counts");
  EXPECT_EQ(usage_error({"sft", "--lr", "1e-400"}),
            "--lr: 1e-400 is beyond what this program counts");
  EXPECT_EQ(parse({"generate", "--seed", "-1"}).options.seed, -1);
  EXPECT_EQ(parse({"generate", "-s-1"}).options.seed, -1);
  EXPECT_EQ(usage_error({"bench", "model", "--seed", "-1"}), "--seed: -1 is less than 0");
}

TEST(Options, FlagsOfOtherEnginesGetAHint) {
  EXPECT_EQ(usage_error({"generate", "--temperature", "0"}),
            "unknown option --temperature; it is --temp here");
  EXPECT_EQ(usage_error({"generate", "-temp", "0"}), "unknown option -temp; it is --temp here");
  EXPECT_EQ(usage_error({"generate", "--max-tokens=5"}),
            "unknown option --max-tokens; it is -n or --predict here");
  EXPECT_EQ(usage_error({"generate", "--max_tokens", "5"}),
            "unknown option --max_tokens; it is -n or --predict here");
  EXPECT_NE(usage_error({"generate", "-cnv"}).find("moesaic chat"), std::string::npos);
  EXPECT_NE(usage_error({"generate", "-ngl", "99"}).find("--gpu-experts"), std::string::npos);
  EXPECT_EQ(usage_error({"sft", "--learning_rate", "1e-4"}),
            "unknown option --learning_rate; it is --lr here");
  EXPECT_NE(usage_error({"generate", "--n", "3"}).find("--num-return"), std::string::npos);
  EXPECT_EQ(parse({"generate", "-p", "-temp"}).options.prompt, "-temp");
  EXPECT_EQ(parse({"generate", "-c4096", "-n5"}).options.ctx_size, 4096);
}

TEST(Options, SomeAreGivenSeveralTimes) {
  const Options options =
      parse({"generate", "--stop", "a, b", "-r", "\n", "-l", "3+1", "-l4-2"}).options;
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a, b", "\n"}));
  EXPECT_EQ(options.logit_bias, (std::vector<std::string>{"3+1", "4-2"}));
  const test::TemporaryDirectory directory;
  const std::string file = directory.path_of("run.ini");
  test::write_text(file, "stop = x\nstop = y\n");
  const Command command = parse({"generate", "--config", file});
  EXPECT_EQ(command.options.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(parse({"generate", "--config", file}, {{"MOESAIC_STOP", "z"}}).options.stop,
            std::vector<std::string>{"z"});
  EXPECT_EQ(parse({"generate", "--config", file, "stop=w"}).options.stop,
            std::vector<std::string>{"w"});
  const Command given = parse({"generate", "--stop", "p", "--stop", "q"});
  test::write_text(file, config_text(given));
  EXPECT_EQ(parse({"generate", "--config", file}).options.stop, given.options.stop);
  const Json json = Json::parse(config_json(command), "config");
  EXPECT_EQ(json.at("stop").at(1).as_string(), "y");
}

TEST(Options, SourcesOfValuesAreKnown) {
  const Command command = parse({"generate", "--temp", "0.8"}, {{"MOESAIC_TOP_K", "40"}});
  EXPECT_EQ(source_of(command, "temp"), OptionSource::command_line);
  EXPECT_EQ(source_of(command, "top-k"), OptionSource::environment);
  EXPECT_EQ(source_of(command, "top-p"), OptionSource::preset);
}

TEST(Options, FormatsHaveOtherSpellings) {
  EXPECT_EQ(parse({"generate"}).options.expert_format, std::nullopt);
  EXPECT_EQ(parse({"generate", "--expert-format", "nvfp4"}).options.expert_format,
            layout_from_name("nvfp4"));
  EXPECT_EQ(parse({"score", "--expert-format=AMXINT4"}).options.expert_format,
            layout_from_name("int4"));
  EXPECT_EQ(parse({"convert", "expert-format=fp8"}).options.expert_format,
            layout_from_name("fp8_block"));
  EXPECT_EQ(parse({"generate"}, {{"MOESAIC_EXPERT_FORMAT", "gptq_int4"}}).options.expert_format,
            layout_from_name("int4_group128"));
  EXPECT_EQ(parse({"score", "--dense-format", "RAWINT4"}).options.dense_format,
            layout_from_name("int4_group"));
  EXPECT_EQ(parse({"convert", "--head-format", "Int8"}).options.head_format,
            layout_from_name("int8"));
  const std::string message = usage_error({"generate", "--expert-format", "nvfp5"});
  EXPECT_TRUE(message.starts_with("--expert-format: \"nvfp5\" is not one of auto, bf16, int8"))
      << message;
  EXPECT_TRUE(message.ends_with("did you mean nvfp4?")) << message;
}

TEST(Options, NamesOfKTransformersThatAskForMoreThanALayoutSayWhatToGiveInstead) {
  const std::string without = usage_error({"sft", "--expert-format", "AMXINT8_SFT_SkipLoRA"});
  EXPECT_NE(without.find("mxfp8; give the name without _SkipLoRA"), std::string::npos) << without;
  const std::string least = usage_error({"sft", "--expert-format", "AMXINT4_1KGroup_SFT"});
  EXPECT_NE(least.find("mxfp8; it keeps a least value"), std::string::npos) << least;
}

TEST(Options, NumbersOfBytesAreKeptAsTheyWereWritten) {
  const Command command = parse({"generate", "--memory-limit", "1.5G"});
  EXPECT_EQ(command.options.memory_limit->bytes, std::int64_t{3} << 29);
  EXPECT_NE(config_text(command).find("memory-limit = 1.5G "), std::string::npos);
  EXPECT_FALSE(parse({"generate", "--memory-limit", "auto"}).options.memory_limit.has_value());
  EXPECT_NE(config_text(parse({"generate"})).find("memory-limit = auto "), std::string::npos);
}

TEST(Options, MissingValueIsAnError) {
  EXPECT_NE(usage_error({"generate", "--predict"}).find("--predict"), std::string::npos);
}

TEST(Options, FlagOfAnotherVerbIsAnError) {
  EXPECT_EQ(usage_error({"generate", "--n-gen", "3"}),
            "--n-gen is no option of moesaic generate; it is one of bench model, study point");
}

TEST(Options, VerbsAreNamedWithTheNearest) {
  EXPECT_EQ(parse({"bench", "model"}).verb, Verb::bench_model);
  const std::string message = usage_error({"genrate"});
  EXPECT_NE(message.find("unknown verb \"genrate\""), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean generate?"), std::string::npos) << message;
  EXPECT_EQ(parse({"bench", "layer"}).verb, Verb::bench_layer);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"bench"}, std::vector<std::string>{"bench", "speed"}}) {
    EXPECT_EQ(usage_error(arguments),
              "\"bench\" wants to know what: try moesaic bench model, moesaic bench kernels, "
              "moesaic bench layer, moesaic bench exchange, moesaic bench sft");
  }
}

TEST(Options, InspectTakesADirectoryAsWord) {
  EXPECT_EQ(parse({"inspect", "some/dir"}).options.model, "some/dir");
  EXPECT_EQ(parse({"inspect", "some/a=b"}).options.model, "some/a=b");
  EXPECT_EQ(usage_error({"generate", "some/dir"}), "\"some/dir\" is neither a flag nor name=value");
}

TEST(Options, UnknownVariableIsNoted) {
  const Command command = parse({"generate"}, {{"MOESAIC_TOPK", "1"}});
  ASSERT_EQ(command.notes.size(), 1U);
  EXPECT_EQ(command.notes[0],
            "environment variable MOESAIC_TOPK is not an option; did you mean MOESAIC_TOP_K?");
}

TEST(Options, LettersBelongToTheirVerb) {
  EXPECT_EQ(parse({"generate", "-n", "7"}).options.predict, 7);
  EXPECT_EQ(parse({"bench", "model", "-n", "7", "-p", "9"}).options.n_gen,
            std::vector<std::int64_t>{7});
  EXPECT_EQ(parse({"bench", "model", "-n", "7", "-p", "9"}).options.n_prompt,
            std::vector<std::int64_t>{9});
}

TEST(Options, NamesBelongToTheirVerbToo) {
  const Options kernels = parse({"bench", "kernels", "-t", "1,4", "--isa", "all"}).options;
  EXPECT_EQ(kernels.thread_counts, (std::vector<std::int64_t>{1, 4}));
  EXPECT_TRUE(kernels.isa.all);
  EXPECT_EQ(parse({"bench", "layer", "threads=3"}).options.threads, 3);
  EXPECT_EQ(parse({"bench", "kernels"}, {{"MOESAIC_THREADS", "2"}}).options.thread_counts,
            (std::vector<std::int64_t>{2}));
  EXPECT_EQ(usage_error({"bench", "layer", "--threads", "1,4"}),
            "--threads: \"1,4\" is not a whole number");
  EXPECT_NE(usage_error({"bench", "layer", "--isa", "all"}).find("is not one of"),
            std::string::npos);
}

TEST(Options, ListsAreCheckedItemByItem) {
  const Options options = parse({"bench", "kernels", "--rows", "3,1,2"}).options;
  EXPECT_EQ(options.rows, (std::vector<std::int64_t>{3, 1, 2}));
  EXPECT_EQ(parse({"bench", "kernels", "--rows", "3, 1 ,2"}).options.rows, options.rows);
  EXPECT_EQ(usage_error({"bench", "kernels", "--rows", "3,,2"}),
            "--rows: \"\" is not a whole number");
  EXPECT_EQ(usage_error({"bench", "kernels", "--rows", "3,0"}), "--rows: 0 is less than 1");
  EXPECT_EQ(usage_error({"bench", "kernels", "--rows", ""}), "--rows: \"\" is not a whole number");
  const Command command = parse({"bench", "kernels", "--rows", "3,1"});
  EXPECT_NE(config_text(command).find("rows = 3,1 "), std::string::npos);
  EXPECT_EQ(Json::parse(config_json(command), "config").at("rows").at(1).as_int(), 1);
}

TEST(ShellWord, IsOneWordToAShell) {
  EXPECT_EQ(shell_word("runs/qwen3_moe-1.ini"), "runs/qwen3_moe-1.ini");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("$HOME; it's"), R"('$HOME; it'\''s')");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(NearestName, CountsSwappedNeighboursAsOneEdit) {
  const std::vector<std::string_view> names = {"temp", "top-k", "threads"};
  EXPECT_EQ(nearest_name("tepm", names), "temp");
  EXPECT_EQ(nearest_name("thr", names), "threads");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("completely-else", names), "");
}

}  // namespace
}  // namespace moesaic
