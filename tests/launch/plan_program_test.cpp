#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <tuple>

#include "tests/launch/plan_program.h"
#include "tests/parallel/test_machine.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::test {
namespace {

TEST_F(Plan, Ranks_hold_the_experts_that_are_placed_there) {
  const auto experts = [&](const std::string& placement) {
    std::vector<std::int64_t> counts;
    plan({"-m", kDemo, "--ranks", "3", "--placement", placement})
        .at("ranks")
        .for_each([&](const std::string&, const Json& rank) {
          EXPECT_EQ(rank.contains("experts_start_idx"), placement == "contiguous");
          counts.push_back(rank.at("experts").as_int());
        });
    return counts;
  };
  EXPECT_EQ(experts("contiguous"), (std::vector<std::int64_t>{5, 5, 6}));
  EXPECT_EQ(experts("round_robin"), (std::vector<std::int64_t>{6, 5, 5}));
}

TEST_F(Plan, A_config_without_weights_counts_what_the_weights_would) {
  const std::string empty = directory_.path_of("empty");
  std::filesystem::create_directory(empty);
  const std::string models = kData + "/models/";
  for (const std::string& with_weights :
       {kDemo, models + "qwen2_moe-v4", models + "olmoe-v5", models + "mixtral-v5",
        models + "mixtral-v5-fused", models + "granitemoe-v4"}) {
    const Arguments options = {"--ranks", "2", "--memory",        "64G", "--ctx-size", "64",
                               "-n",      "8", "--prompt-tokens", "8"};
    const Json expected = plan(joined({"-m", with_weights}, options)).at("items");
    const std::string config = empty + "/config.json";
    std::filesystem::copy_file(with_weights + "/config.json", config,
                               std::filesystem::copy_options::overwrite_existing);
    for (const std::string& without : {empty, config}) {
      const Json planned = plan(joined({"-m", without}, options));
      for (const std::string item :
           {"expert", "dense", "cache", "activation", "exchange", "load"}) {
        EXPECT_EQ(planned.at("items").at(item).as_int(), expected.at(item).as_int())
            << with_weights << " " << item;
      }
      EXPECT_NE(planned.at("command").as_string().find("--model " + empty + " "), std::string::npos)
          << "the directory that will hold the weights: " << planned.at("command").as_string();
      EXPECT_NE(planned.at("sources").at("weights").as_string().find(config + " alone"),
                std::string::npos);
    }
  }
  const std::string quantised = models + "qwen3_moe-fp8-block/config.json";
  expect_failure(run_moesaic({"plan", "-m", quantised}), 2,
                 {quantised, "quantization_config", "--expert-format"});
  const Json counted = plan({"-m", quantised, "--expert-format", "int8", "--dense-format", "int8",
                             "--ctx-size", "64", "-n", "8", "--prompt-tokens", "8"});
  EXPECT_GT(counted.at("items").at("expert").as_int(), 0);
  expect_failure(run_moesaic({"plan", "-m", directory_.path_of("none")}), 3, {"none"});
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--defer", "5"}), 2, {"--defer 5", "top-k"});
}

TEST_F(Plan, A_file_of_routing_that_does_not_fit_is_a_bad_file) {
  const std::string file = directory_.path_of("load.json");
  const std::string layer = "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";
  const std::string zeros = "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]";
  for (const auto& [rows, text] :
       {std::pair("[" + layer + "," + zeros + "]", file + ": layer 1: the rows of its experts"),
        {"[" + layer + "]", file + ": recorded of 1 layers with 16 experts"}}) {
    write_text(file, "{\"experts_per_token\": 4, \"rows\": " + rows + "}");
    expect_failure(run_moesaic({"plan", "-m", kDemo, "--routing", file}), 3, {text});
  }
}

TEST_F(Plan, A_layer_of_a_shape_needs_no_model_and_takes_what_its_point_takes) {
  const Arguments layer = {"--shape", "16,512,2048,2",   "-b",  "256", "-t",
                           "1",       "--expert-format", "int8"};
  const Json planned = plan(joined({"--ranks", "2", "--memory", "64G"}, layer));
  const auto bytes = static_cast<double>(planned.at("per_node_bytes").as_int());
  EXPECT_GT(planned.at("items").at("expert").as_double(), 16 * 3 * 512 * 2048);
  EXPECT_GT(planned.at("largest").at("batch_size").as_int(), 256);
  EXPECT_FALSE(planned.at("largest").contains("ctx_size"));
  EXPECT_GT(planned.at("traffic").at("dispatch_bytes").as_double(), 0);
  const std::string words = " --job layer --sequences 2 --n-prompt 256";
  const std::string command = planned.at("command").as_string();
  EXPECT_NE(command.find("mpirun -n 2 --map-by ppr:2:node --bind-to none moesaic study point"),
            std::string::npos)
      << command;
  EXPECT_NE(command.find(" --shape 16,512,2048,2"), std::string::npos) << command;
  EXPECT_TRUE(command.ends_with(words)) << command;
  const ProgramResult point =
      run_ranks(2, joined({"study", "point", "--job", "layer", "--sequences", "2", "--n-prompt",
                           "256", "--repetitions", "1", "--no-roofs"},
                          layer));
  ASSERT_EQ(point.exit_code, 0) << point.text();
  const auto peak = static_cast<double>(last_line(point).at("node_peak_bytes").as_int());
  EXPECT_NEAR(bytes, peak, std::max(0.15 * peak, 8.0 * (1 << 20)));  // MPI differs elsewhere
}

TEST_F(Plan, What_a_shape_leaves_without_a_meaning_is_refused) {
  const auto refuses = [](const Arguments& more, const std::vector<std::string>& words) {
    expect_failure(run_moesaic(joined({"plan"}, more)), 2, words);
  };
  refuses({"--shape", "mixtrall"}, {"--shape", "mixtrall", "did you mean mixtral?"});
  refuses({"--shape", "8,64,32"}, {"--shape", "8,64,32", "E,H,I,K"});
  refuses({"--shape", "mixtral", "-m", kDemo}, {"--shape mixtral", "--model"});
  refuses({"--shape", "mixtral", "-c", "128"}, {"--ctx-size", "--shape mixtral"});
  refuses({"--shape", "mixtral", "--job", "sft"}, {"--job", "--shape mixtral"});
  refuses({"--shape", "mixtral", "--ranks", "9"}, {"9 ranks", "8 experts"});
  refuses({"-m", kDemo, "--experts", "4"}, {"--experts 4", "--shape"});
  refuses({"--ranks", "4"}, {"--model", "--shape"});
}

TEST_F(Plan, Files_that_are_others_are_told_with_what_was_expected) {
  const std::string other = file("other.json", R"({"x": 1})");
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--machine", other}), 3,
                 {other, "moesaic_machine", "doctor --measure"});
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--routing", "zip:1"}), 3,
                 {"zip:1", "even", "zipf:S"});
}

TEST_F(Plan, What_does_not_fit_is_refused_with_what_would_help) {
  const Arguments options = {"plan", "-m", kDemo, "--ranks", "2", "--memory", "40M"};
  const ProgramResult text = run_moesaic(options);
  EXPECT_EQ(text.exit_code, 4) << text.text();
  EXPECT_NE(text.err.find("most of it for the program"), std::string::npos) << text.text();
  EXPECT_NE(text.err.find("fewer ranks a node"), std::string::npos) << text.text();
  EXPECT_NE(text.err.find("40.0 MiB are available (--memory);"), std::string::npos) << text.text();
  EXPECT_NE(text.out.find("of 40.0 MiB (--memory) on a node"), std::string::npos) << text.text();
  const ProgramResult json = run_moesaic(joined(options, {"--json"}));
  EXPECT_EQ(json.exit_code, 4) << json.text();
  EXPECT_FALSE(last_line(json).at("fits").as_bool());
  const ProgramResult many = run_moesaic({"plan", "-m", kDemo, "--ranks", "17"});
  EXPECT_EQ(many.exit_code, 2) << many.text();
}

TEST_F(Plan, Options_that_nothing_fits_for_are_told_from_those_that_a_job_lacks) {
  const Arguments options = {"plan", "-m", kDemo, "--memory", "4M"};
  const ProgramResult text = run_moesaic(options);
  EXPECT_NE(text.out.find("largest   --ctx-size none, --parallel none, --batch-size none, "),
            std::string::npos)
      << text.text();
  const Json largest = last_line(run_moesaic(joined(options, {"--json"}))).at("largest");
  for (const char* option : {"ctx_size", "parallel", "batch_size"}) {
    EXPECT_EQ(largest.at(option).as_int(), 0) << option;
  }
  const ProgramResult score = run_moesaic(joined(options, {"--json", "--job", "score"}));
  EXPECT_FALSE(last_line(score).at("largest").contains("parallel"));
}

TEST_F(Plan, The_largest_values_fit_and_larger_ones_do_not) {
  // Of a machine file: what a process takes without a model differs from one to the next.
  const std::string machine = file("machine.json", test_machine().text());
  const Arguments options = {"-m", kDemo, "--memory", "80M", "--machine", machine};
  const auto with = [&](const char* option, std::int64_t value) {
    return run_moesaic(joined(joined({"plan"}, options), {option, fmt::format("{}", value)}))
        .exit_code;
  };
  const Json planned = plan(options);
  EXPECT_TRUE(planned.at("fits").as_bool());
  const Json largest = planned.at("largest");
  EXPECT_EQ(largest.at("ctx_size").as_int(), 2048);
  const std::int64_t parallel = largest.at("parallel").as_int();
  EXPECT_GT(parallel, 8);
  EXPECT_EQ(with("--parallel", parallel), 0);
  EXPECT_EQ(with("--parallel", parallel + 1), 4);
  EXPECT_EQ(planned.at("fewest_nodes").as_int(), 1);
}

TEST_F(Plan, The_largest_context_fits_where_it_decides_how_long_texts_are) {
  const std::string machine = file("machine.json", test_machine().text());
  Arguments options;
  std::int64_t largest = 0;
  for (int mebibytes = 20; largest == 0 && mebibytes < 60; mebibytes += 2) {
    options = {"plan",      "-m",   kDemo, "--memory", fmt::format("{}M", mebibytes),
               "--machine", machine};
    const Json planned = last_line(run_moesaic(joined(options, {"--json"})));
    largest = planned.at("largest").at("ctx_size").as_int();
  }
  ASSERT_GT(largest, 0);
  ASSERT_LT(largest, 256);
  const auto with = [&](std::int64_t value) {
    return run_moesaic(joined(options, {"-c", fmt::format("{}", value)})).exit_code;
  };
  EXPECT_EQ(with(largest), 0) << largest;
  EXPECT_EQ(with(largest + 1), 4) << largest;
  // A context that has no room for what is to be told is none.
  const ProgramResult none = run_moesaic(joined(options, {"-n", "2000"}));
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_NE(none.out.find("largest   --ctx-size none, "), std::string::npos) << none.out;
}

TEST_F(Plan, A_context_is_filled_unless_the_prompt_is_told) {
  const auto tokens = [](const Arguments& more) {
    return plan(joined({"-m", kDemo, "-n", "20"}, more)).at("sequence_tokens").as_int();
  };
  EXPECT_EQ(tokens({}), 532);
  EXPECT_EQ(tokens({"-c", "1000"}), 1000);
  EXPECT_EQ(tokens({"-c", "1000", "--prompt-tokens", "100"}), 120);
}

TEST_F(Plan, Sizes_that_nobody_gave_go_with_a_small_context) {
  const std::string small = file("config.json", replaced(read_text(kDemo + "/config.json"),
                                                         "\"max_position_embeddings\": 2048",
                                                         "\"max_position_embeddings\": 200"));
  const auto planned = [&](const Arguments& more) { return plan(joined({"-m", small}, more)); };
  const auto has = [](const Json& plan, const std::string& words) {
    return plan.at("command").as_string().find(words) != std::string::npos;
  };
  const Json both = planned({});
  EXPECT_EQ(both.at("sequence_tokens").as_int(), 200);
  EXPECT_TRUE(has(both, " --predict 100 ")) << "the job's own default is 128, too";
  const Json prompt = planned({"--prompt-tokens", "190"});
  EXPECT_EQ(prompt.at("sequence_tokens").as_int(), 200);
  EXPECT_TRUE(has(prompt, " --predict 10 "));
  EXPECT_EQ(planned({"-n", "150"}).at("sequence_tokens").as_int(), 200);
  EXPECT_EQ(planned({"-n", "-1"}).at("sequence_tokens").as_int(), 200);
  EXPECT_EQ(planned({"-n", "5", "--prompt-tokens", "7"}).at("sequence_tokens").as_int(), 12);
  EXPECT_TRUE(has(planned({"-c", "64"}), " --predict 32 "));
  EXPECT_FALSE(has(plan({"-m", kDemo}), "--predict"));
  for (const Arguments& given : {Arguments{"--prompt-tokens", "201"}, Arguments{"-n", "200"},
                                 Arguments{"--prompt-tokens", "100", "-n", "101"}}) {
    expect_failure(run_moesaic(joined({"plan", "-m", small}, given)), 2,
                   {given.front() == "-n" ? "--predict" : given.front(), given[1],
                    "context of 200 tokens (max_position_embeddings"});
  }
  const std::string alone = run_moesaic({"plan", "-m", small, "--prompt-tokens", "201"}).err;
  EXPECT_EQ(alone.find("--predict"), std::string::npos) << "which nobody gave: " << alone;
}

TEST_F(Plan, A_context_beyond_the_model_is_told_as_a_run_tells_it) {
  const Arguments asked = {"-m", kDemo, "-c", "3000"};
  const std::string note =
      "warning: --ctx-size 3000 is more than the 2048 tokens that the model was made for "
      "(max_position_embeddings)\n";
  const ProgramResult planned = run_moesaic(joined({"plan"}, asked));
  EXPECT_EQ(planned.exit_code, 0) << planned.text();
  EXPECT_EQ(planned.err, note);
  const ProgramResult run = run_moesaic(joined({"generate", "-p", "a", "-n", "1"}, asked));
  EXPECT_NE(run.err.find(note), std::string::npos) << run.err;
}

TEST_F(Plan, What_to_type_has_options_that_the_job_alone_finds_in_the_file) {
  const std::string data = kData + "/demo-sft.jsonl";
  const std::string out = directory_.path_of("out");
  const std::string config =
      file("sft.ini",
           "lora-rank = 2\nranks = 2\nmax-steps = 1\nno-shuffle = yes\n"
           "rslora = false\ngpu-memory = 4G\nglobal-batch-size = 1\ntemp = 3\n"
           "output = " +
               out + "\n");
  const std::string command =
      plan({"-m", kDemo, "--config", config, "--job", "sft"}).at("command").as_string();
  EXPECT_NE(command.find(" --max-steps 1 --no-shuffle=yes --rslora=false --output " + out),
            std::string::npos)
      << command;
  EXPECT_TRUE(command.ends_with(" --data FILE")) << command;
  EXPECT_EQ(command.find("temp"), std::string::npos) << command;
  EXPECT_EQ(command.find("gpu-memory"), std::string::npos) << command;
  const std::string path = std::filesystem::path(MOESAIC_PROGRAM).parent_path();
  const std::string typed = replaced(command, "--data FILE", "--data " + data);
  const ProgramResult result = run_program({"/bin/sh", "-c", "PATH=" + path + ":$PATH; " + typed});
  EXPECT_EQ(result.exit_code, 0) << command << result.text();
  EXPECT_TRUE(std::filesystem::exists(out + "/adapter_model.safetensors")) << result.text();
}

TEST_F(Plan, The_memory_that_the_file_gives_the_job_is_what_it_has) {
  const std::string config = file("plan.ini", "memory-limit = 30M\npredict = 3\n");
  const Arguments job = {"plan", "-m", kDemo, "--ranks", "2", "--config", config, "--json"};
  const ProgramResult refused = run_moesaic(job);
  EXPECT_EQ(refused.exit_code, 4) << refused.text();
  const Json planned = last_line(refused);
  EXPECT_EQ(planned.at("limit_bytes").as_int(), 30 << 20);
  EXPECT_FALSE(planned.at("fits").as_bool());
  const std::string command =
      last_line(run_moesaic(joined(job, {"--memory", "2G"}))).at("command").as_string();
  EXPECT_NE(command.find(" --memory-limit 2G"), std::string::npos) << command;
  EXPECT_EQ(command.find("30M"), std::string::npos) << command;
}

TEST_F(Plan, What_to_type_has_options_of_files_and_of_the_environment) {
  const std::string config = file("plan.ini", "expert-format = int8\nranks = 2\nmmap = off\n");
  ::setenv("MOESAIC_WIRE", "bf16", 1);
  const Json planned = plan({"-m", kDemo, "--config", config, "--defer", "1"});
  ::unsetenv("MOESAIC_WIRE");
  const std::string command = planned.at("command").as_string();
  EXPECT_TRUE(command.starts_with("mpirun -n 2 ")) << command;
  for (const char* option : {"format int8", " --wire bf16", " --defer 1", " --mmap=false"}) {
    EXPECT_NE(command.find(option), std::string::npos) << command;
  }
  EXPECT_EQ(command.find("config"), std::string::npos) << command;
}

TEST_F(Plan, Starts_no_MPI_and_says_what_to_type) {
  // MPI would refuse to start.
  const ProgramResult result = run_moesaic(
      {"plan", "-m", kDemo, "--ranks", "4", "--ranks-per-node", "2", "--job", "score", "-b", "64"},
      {{"TMPDIR", "/nonexistent"}});
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.out.find("mpirun -n 4 --map-by ppr:2:node --bind-to none moesaic score --model"),
            std::string::npos)
      << result.text();
  EXPECT_NE(result.out.find("--batch-size 64 -f FILE"), std::string::npos) << result.text();
  EXPECT_NE(result.out.find("time      not told"), std::string::npos) << result.text();
  const Json sft = plan({"-m", kDemo, "--job", "sft", "--lora-rank", "4", "-c", "256"});
  EXPECT_GT(sft.at("items").at("adapter").as_int(), 0);
  EXPECT_GT(sft.at("items").at("optimizer").as_int(), sft.at("items").at("adapter").as_int());
}

TEST_F(Plan, Time_comes_from_what_doctor_measured) {
  const std::string machine = directory_.path_of("machine.json");
  const ProgramResult doctor = run_ranks(2, {"doctor", "--measure", machine, "--seconds", "0", "-t",
                                             "1", "--footprint", "32M", "--ranks-per-node", "1"});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.text();
  const Json widths = Json::read_file(machine).at("attention").at("head_dim");
  EXPECT_GE(widths.at(widths.size() - 1).as_int(), 576) << "those of latent attention";
  const Json planned = plan({"-m", kDemo, "--ranks", "2", "--ranks-per-node", "1", "-t", "1",
                             "--machine", machine, "--routing", "even"});
  const Json time = planned.at("time");
  EXPECT_GT(time.at("prompt_tokens_per_second").as_double(), 0);
  EXPECT_GT(time.at("generation_tokens_per_second").as_double(), 0);
  double sum = 0;
  bool has_link = false;
  time.at("terms").at("generation").for_each([&](const std::string&, const Json& term) {
    sum += term.at("seconds").as_double();
    has_link = has_link || term.at("name").as_string() == "link.bytes";
    EXPECT_TRUE(term.at("source").as_string().starts_with(machine));
  });
  EXPECT_TRUE(has_link);
  EXPECT_NEAR(time.at("generation_tokens_per_second").as_double() * sum, 2 * 8, 1e-3);
  const Json training = plan({"-m", kDemo, "--ranks", "2", "--ranks-per-node", "1", "-t", "1",
                              "--machine", machine, "--job", "sft", "-c", "64"})
                            .at("time");
  std::set<std::string> terms;
  training.at("terms").at("prompt").for_each(
      [&](const std::string&, const Json& term) { terms.insert(term.at("name").as_string()); });
  for (const char* term : {"experts.bf16.back", "adapters", "optimizer", "sums"}) {
    EXPECT_TRUE(terms.contains(term)) << term;
  }
  EXPECT_GT(training.at("prompt_tokens_per_second").as_double(), 0);
}

/// As one rank alone measures.
TEST_F(Plan, Tells_all_but_the_time_where_rows_between_ranks_were_not_measured) {
  MachineRates rates = test_machine();
  rates.inside.reset();
  rates.between.reset();
  const std::string machine = file("machine.json", rates.text());
  for (const auto& [ranks, on_node, between] : {std::tuple("2", "2", "ranks of a node"),
                                                {"2", "1", "nodes"},
                                                {"4", "2", "ranks of a node and between nodes"}}) {
    const Arguments asked = {"-m", kDemo, "--ranks", ranks, "--ranks-per-node", on_node};
    const Json planned = plan(joined(asked, {"--machine", machine}));
    EXPECT_FALSE(planned.find("time"));
    EXPECT_EQ(planned.at("ranks").size(), std::stoi(ranks));
    const ProgramResult text = run_moesaic(joined(joined({"plan"}, asked), {"--machine", machine}));
    EXPECT_NE(text.out.find("time      not told: " + machine + ": rows between " + between +
                            " were not measured; start moesaic doctor --measure"),
              std::string::npos)
        << text.text();
  }
}

}  // namespace
}  // namespace moesaic::test
