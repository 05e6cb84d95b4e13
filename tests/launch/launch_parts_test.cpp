// The parts of the program that need neither ranks nor a model.

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/descriptor.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/progress.h"
#include "comm/thread_communicator.h"
#include "launch/chat/line_reader.h"
#include "launch/input/prompts.h"
#include "launch/job/agreement.h"
#include "launch/job/memory_check.h"
#include "launch/job/model_facts.h"
#include "launch/sft/disk_demand.h"
#include "launch/verbs/self_test.h"
#include "src/model/gqa_kind.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;

TEST(Agreement, TheLowestFailingRankSpeaks) {
  run_thread_ranks(4, [](Communicator& comm) {
    try {
      agree(comm, [&] {
        if (comm.rank() >= 2) fail(ErrorKind::file, "rank {} cannot read", comm.rank());
      });
      ADD_FAILURE() << "no error on rank " << comm.rank();
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.speaks(), comm.rank() == 2);
      EXPECT_EQ(error.kind(), ErrorKind::file);
      if (error.speaks()) {
        EXPECT_STREQ(error.what(), "rank 2 cannot read");
      }
    }
    agree(comm, [] {});
  });
}

TEST(Agreement, OneThatIsInterruptedSaysWhatItWasAt) {
  run_thread_ranks(3, [](Communicator& comm) {
    try {
      agree(comm, [&] {
        if (comm.rank() == 1) throw Interrupted("interrupted (SIGTERM) while reading", true);
      });
      ADD_FAILURE() << "not interrupted: rank " << comm.rank();
    } catch (const Interrupted& interrupted) {
      const bool is_asked = comm.rank() == 1;
      EXPECT_STREQ(interrupted.what(), is_asked ? "interrupted (SIGTERM) while reading"
                                                : "another rank was asked to stop");
      EXPECT_FALSE(interrupted.is_terminated()) << "nobody has failed";
    }
  });
}

TEST(Agreement, LongWorkEndsWhereAnotherRankHasFailed) {
  run_thread_ranks(3, [](Communicator& comm) {
    LongWork work(comm, "reading");
    try {
      agree_on_work(comm, work, [&] {
        if (comm.rank() == 1) fail(ErrorKind::file, "cannot read");
        for (;;) work.advance(1, 2);
      });
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.speaks(), comm.rank() == 1);
      EXPECT_EQ(error.kind(), ErrorKind::file);
    }
    agree(comm, [] {});
  });
}

TEST(Agreement, DifferentThingsAreFound) {
  run_thread_ranks(3, [](Communicator& comm) {
    std::vector<Shared> shared = {{"a model", 7}, {"seeds", 8}, {"texts", 9}};
    require_same(comm, shared);
    if (comm.rank() == 2) shared[1].fingerprint = 9;
    try {
      require_same(comm, shared);
      ADD_FAILURE() << "no error on rank " << comm.rank();
    } catch (const AgreedError& error) {
      EXPECT_STREQ(error.what(), "seeds differ between rank 0 and rank 2; all ranks need the same");
      EXPECT_EQ(error.speaks(), comm.rank() == 0);
    }
  });
}

TEST(OptionValues, LengthsOfTimeAreAdded) {
  const auto time = [](std::string_view text) {
    return parse_time_span(text, "here").milliseconds;
  };
  EXPECT_EQ(time("90"), 90'000);
  EXPECT_EQ(time("0.25s"), 250);
  EXPECT_EQ(time("50m"), 50 * 60'000);
  EXPECT_EQ(time("1h30m"), 90 * 60'000);
  EXPECT_EQ(time("1d1h1m1"), 90'061'000);
  for (const char* bad : {"", "h", "5x", "-3s", "1h-1m", "nan", "inf", "1e300d", "3 m"}) {
    EXPECT_THROW(static_cast<void>(time(bad)), Error) << bad;
  }
}

TEST(Memory, ParsesBytes) {
  const auto bytes = [](std::string_view text) { return parse_bytes(text, "here").bytes; };
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("2K"), 2048);
  EXPECT_EQ(bytes("1.5GiB"), std::int64_t{3} << 29);
  EXPECT_EQ(bytes("12 GB"), std::int64_t{12} << 30);
  EXPECT_EQ(bytes("80 B"), 80);
  EXPECT_EQ(bytes("0"), 0);
  for (const char* bad : {"", "G", "-1", "12X", "12GG", "1e30", "80"}) {
    const std::string message = error_message([&] { (void)bytes(bad); }, ErrorKind::usage);
    EXPECT_TRUE(message.starts_with("here: ")) << bad << ": " << message;
  }
}

TEST(Memory, ShortageSaysWhatIsNeededAndWhatHelps) {
  MemoryPlan plan{.num_ranks = 2};
  plan.items[MemoryItem::expert] = 6 << 20;
  plan.items[MemoryItem::dense] = 1 << 20;
  plan.items[MemoryItem::cache] = 5 << 20;
  plan.items[MemoryItem::activation] = 1 << 10;
  require_memory(plan, {13 << 20, "test"}, Verb::generate);
  const std::string message = error_message(
      [&] {
        require_memory(plan, {8 << 20, "memory.max"}, Verb::generate);
      },
      ErrorKind::resource);
  for (const char* part : {"12.0 MiB", "most of it for experts", "8.00 MiB", "memory.max",
                           "--parallel", "key-value cache 5.00 MiB"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  for (const char* part : {"--batch-size", "--recompute", "adapters", "exchange"}) {
    EXPECT_EQ(message.find(part), std::string::npos) << message;
  }
  plan.items[MemoryItem::optimizer] = 8 << 20;
  plan.items[MemoryItem::activation] = 8 << 20;
  const std::string training = error_message(
      [&] {
        require_memory(plan, {8 << 20, "test"}, Verb::sft);
      },
      ErrorKind::resource);
  for (const char* part : {"optimizer 8.00 MiB", "--batch-size", "--lora-rank"}) {
    EXPECT_NE(training.find(part), std::string::npos) << training;
  }
  EXPECT_EQ(training.find("--recompute"), std::string::npos) << "no layer is kept: " << training;
  plan.keeps_layers = true;
  const std::string keeping = error_message(
      [&] {
        require_memory(plan, {8 << 20, "test"}, Verb::sft);
      },
      ErrorKind::resource);
  EXPECT_NE(keeping.find("--recompute always"), std::string::npos) << keeping;
}

TEST(Memory, ShortageAdvisesOptionsOfTheVerbAlone) {
  MemoryPlan plan{.num_ranks = 1};
  plan.items[MemoryItem::cache] = 6 << 20;
  plan.items[MemoryItem::adapter] = 6 << 20;
  const auto message = [&](Verb verb) {
    return error_message(
        [&] {
          require_memory(plan, {5 << 20, "test"}, verb);
        },
        ErrorKind::resource);
  };
  const auto expect_help = [&](Verb verb, const std::string& help) {
    EXPECT_TRUE(
        message(verb).ends_with("what would help: " + help + "more nodes, or a larger limit"))
        << message(verb);
  };
  expect_help(Verb::score, "shorter sequences (--ctx-size), ");
  expect_help(Verb::chat, "shorter sequences (--predict, --ctx-size), ");
  expect_help(Verb::generate,
              "shorter sequences (--predict, --ctx-size), fewer at a time (--parallel), ");
  expect_help(Verb::bench_model, "shorter sequences (--n-prompt, --n-gen, --prompt-gen), ");
  expect_help(Verb::sft,
              "shorter sequences (--ctx-size), fewer --lora-targets, a smaller --lora-rank, ");
}

TEST(Memory, ShortageNamesTheFormatOfExperts) {
  MemoryPlan plan{.num_ranks = 1};
  plan.items[MemoryItem::expert] = 6 << 20;
  plan.items[MemoryItem::dense] = 1 << 20;
  const auto message = [&](std::initializer_list<std::pair<Format, std::int64_t>> formats) {
    plan.expert_formats = {};
    for (const auto& [format, bytes] : formats) {
      plan.expert_formats[static_cast<std::size_t>(format)] = bytes;
    }
    return error_message(
        [&] {
          require_memory(plan, {5 << 20, "test"}, Verb::generate);
        },
        ErrorKind::resource);
  };
  const std::string mixed = message({{Format::int8, 1 << 20}, {Format::bf16, 5 << 20}});
  EXPECT_NE(mixed.find("experts 6.00 MiB in bf16 and int8,"), std::string::npos) << mixed;
  EXPECT_NE(mixed.find("--expert-format"), std::string::npos) << mixed;
  for (const Format format : {Format::nvfp4, Format::int4, Format::f32}) {
    const std::string small = message({{format, 6 << 20}});
    EXPECT_EQ(small.find("--expert-format"), std::string::npos) << small;
  }
}

TEST(Memory, WeightsAreToldByFormat) {
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};
  EXPECT_EQ(weights_text(experts, others), "experts none, others none");
  experts[static_cast<std::size_t>(Format::mxfp4)] = 3 << 20;
  others[static_cast<std::size_t>(Format::f32)] = 1 << 10;
  others[static_cast<std::size_t>(Format::bf16)] = 2 << 10;
  EXPECT_EQ(weights_text(experts, others),
            "experts 3.00 MiB mxfp4, others 2.00 KiB bf16 and 1.00 KiB f32");
}

TEST(Prompts, PlainLinesStandAsTheyAre) {
  const std::vector<Prompt> prompts = parse_prompts("one\r\n\n two \n \t\nthree", "file");
  ASSERT_EQ(prompts.size(), 3U) << "blank lines are none";
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[1].text, " two ");
  EXPECT_EQ(prompts[2].where, "file line 5");
  EXPECT_TRUE(parse_prompts("", "file").empty());
}

TEST(Prompts, AFileThatCannotBeReadIsToldWithTheReason) {
  const auto message = [](const std::string& path) {
    return test::error_message([&] { (void)read_file_bytes(path); }, ErrorKind::file);
  };
  const std::string name(300, 'x');
  EXPECT_EQ(message(name), name + ": File name too long");
  EXPECT_EQ(message("/no/such/file"), "/no/such/file: no such file");
  EXPECT_EQ(message("/"), "/: cannot be read: Is a directory");
  EXPECT_EQ(message("/dev/null/x"), "/dev/null/x: Not a directory");
  // Nothing is mapped at its beginning.
  EXPECT_EQ(message("/proc/self/mem"), "/proc/self/mem: cannot be read: Input/output error");
}

TEST(Prompts, JsonLinesHaveAPromptAndPerhapsAnId) {
  const std::vector<Prompt> prompts = parse_prompts(
      "{\"prompt\": \"a\\nb\", \"id\": 7}\n\n{\"id\": \"x\", \"prompt\": \"\"}\n", "f");
  ASSERT_EQ(prompts.size(), 2U);
  EXPECT_EQ(prompts[0].text, "a\nb");
  EXPECT_EQ(prompts[0].fields().id, "7");
  EXPECT_EQ(prompts[1].fields().id, "\"x\"");
  EXPECT_EQ(prompts[1].where, "f line 3");
  const std::vector<Prompt> bad = parse_prompts("{\"text\": 1, \"id\": \"x\"}\n{\n", "f");
  ASSERT_EQ(bad.size(), 2U);
  ASSERT_TRUE(bad[0].error && bad[1].error);
  EXPECT_EQ(bad[0].error->kind(), ErrorKind::file);
  EXPECT_NE(std::string_view(bad[0].error->what()).find("f line 1: unknown field \"text\""),
            std::string::npos);
  EXPECT_EQ(bad[0].fields().id, "\"x\"");
  EXPECT_EQ(bad[0].text, "");
  const std::vector<Prompt> split = parse_prompts("\n{\n\"prompt\": \"a\"}\n", "f");
  const std::string_view why = "as the first line begins with {, each is a JSON object";
  ASSERT_TRUE(split.size() == 2 && split[0].error && split[1].error);
  EXPECT_NE(std::string_view(split[0].error->what()).find(why), std::string::npos);
  EXPECT_EQ(std::string_view(split[1].error->what()).find(why), std::string::npos);
  const std::vector<Prompt> other = parse_prompts("{\"prompt\": \"a\", \"max_tokens\": -2}", "f");
  ASSERT_TRUE(other.at(0).error);
  EXPECT_EQ(other[0].text, "a") << "its result says which prompt it was";
}

TEST(Prompts, AJsonListIsNoText) {
  for (const std::string list : {"\n[{\"prompt\": \"a\"}]", "[\n {\"prompt\": \"a\"}\n]", " [ {"}) {
    const std::string message =
        test::error_message([&] { (void)parse_prompts(list, "f"); }, ErrorKind::file);
    EXPECT_NE(message.find(" begins a JSON list, and prompts are a line each"), std::string::npos)
        << message;
  }
  EXPECT_EQ(parse_prompts("[INST] a [/INST]\n[{", "f").size(), 2U) << "the first line decides";
}

TEST(LineReader, TellsTheNumberOfALineThatIsTooLong) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path_of("lines"), "one\n" + std::string(200'000, 'x'));
  const Descriptor file(::open(directory.path_of("lines").c_str(), O_RDONLY | O_CLOEXEC));
  LineReader lines(file.number(), 100'000);
  lines.read();
  EXPECT_EQ(lines.take(), "one");
  const auto read_line = [&] {
    while (!lines.take()) lines.read();
  };
  EXPECT_EQ(error_message(read_line, ErrorKind::file),
            "the standard input line 2 has more than 100000 bytes");
}

TEST(ModelFacts, AttentionSeesKeysOnceAndWindowsCutThem) {
  GqaConfig attention{.num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  ModelConfig config;
  config.layers.push_back({std::make_shared<GqaKind>(attention), nullptr});
  attention.window = 3;
  config.layers.push_back({std::make_shared<GqaKind>(attention), nullptr});
  // 5 tokens see 1+2+3+4+5 keys, and 1+2+3+3+3 with a window of 3.
  const MixerWork work = mixer_work(config, Precision::bf16, 5);
  EXPECT_DOUBLE_EQ(work.flops, 4.0 * 8 * (15 + 12));
  EXPECT_DOUBLE_EQ(work.cache_bytes, 2.0 * 4 * 2 * (15 + 12));
}

TEST(Progress, LineShowsShareAndTimeLeft) {
  const std::string line = progress_line("loading", {1 << 20, 4 << 20, 2.0});
  EXPECT_NE(line.find("25 %"), std::string::npos) << line;
  EXPECT_NE(line.find("1.00 MiB of 4.00 MiB"), std::string::npos) << line;
  EXPECT_NE(line.find("6 s left"), std::string::npos) << line;
}

TEST(SelfTest, ExchangeArrivesOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      EXPECT_EQ(test_exchange(comm, 3, 64).bytes_per_rank, 3 * 64 * (ranks - 1));
    });
  }
}

TEST(SelfTest, EveryKernelOfThisCpuPasses) {
  const std::vector<KernelTest> tests = test_kernels();
  EXPECT_GE(tests.size(), 2U);
  for (const KernelTest& test : tests) EXPECT_TRUE(test.passed()) << test.kernel;
}

TEST(DiskDemand, CheckpointsAreCountedWhoseRoomIsNotTakenYet) {
  const auto most_and_last = [](const DiskDemand& demand) {
    const NewCheckpoints checkpoints = new_checkpoints(demand);
    return std::pair(checkpoints.most, checkpoints.last);
  };
  using Both = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(most_and_last({.total_steps = 10, .keep = 2}), Both(1, 1)) << "at the end alone";
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 10, .keep = 2}), Both(1, 1));
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 5, .keep = 2}), Both(2, 2));
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 1, .keep = 2}), Both(3, 2));
  EXPECT_EQ(most_and_last({.steps_done = 9, .total_steps = 10, .save_every = 1, .keep = 2}),
            Both(1, 1));
  EXPECT_EQ(
      most_and_last({.steps_done = 4, .total_steps = 10, .save_every = 2, .keep = 2, .there = 2}),
      Both(1, 0))
      << "a new one before an old one goes";
  EXPECT_EQ(most_and_last({.steps_done = 10, .total_steps = 10, .keep = 2, .there = 1}),
            Both(0, 0));
}

}  // namespace
}  // namespace moesaic
