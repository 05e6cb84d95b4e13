// Sequences in pages of a pool: shared, copied on write, dropped and recomputed, they give the bits
// of sequences that share nothing.

#include "src/model/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string model(const std::string& name) {
  return MOESAIC_TEST_DATA "/models/" + name;
}

/// A text that a sequence has seen.
struct Text {
  Tokens tokens;
  Sequence sequence;
};

/// One engine and a pool for its texts.
class Texts {
 public:
  Texts(TestEngine& engine, std::int64_t max_pages)
      : engine_(engine),
        pool_(engine.config(), Precision::bf16, max_pages * page_bytes(engine.config())) {}

  static std::int64_t page_bytes(const ModelConfig& config) {
    return KvPool::sequence_bytes(config, Precision::bf16, 1);
  }

  [[nodiscard]] KvPool& pool() { return pool_; }
  [[nodiscard]] Text empty(std::int64_t prompt_length) {
    return {{}, pool_.make_sequence(prompt_length)};
  }

  /// Appends tokens; returns the logits of the last.
  std::vector<float> feed(Text& text, const Tokens& more) {
    const SequenceChunk chunk{.sequence = &text.sequence, .tokens = more};
    const MatrixView<const float> logits = engine_.transformer().forward({&chunk, 1});
    text.tokens.insert(text.tokens.end(), more.begin(), more.end());
    return {logits.data(), logits.data() + logits.cols()};
  }

  /// Appends tokens and expects the logits of the same text alone.
  void feed_and_compare(Text& text, const Tokens& more) {
    const std::vector<float> logits = feed(text, more);
    EXPECT_EQ(logits, alone(text));
  }

 private:
  /// The logits of the last token of the same text, from nothing, in memory of its own.
  std::vector<float> alone(const Text& text) {
    KvPool own(engine_.config(), Precision::bf16);
    Sequence sequence = own.make_sequence(text.sequence.prompt_length());
    const SequenceChunk chunk{.sequence = &sequence, .tokens = text.tokens};
    const MatrixView<const float> logits = engine_.transformer().forward({&chunk, 1});
    return {logits.data(), logits.data() + logits.cols()};
  }

  TestEngine& engine_;
  KvPool pool_;
};

template <typename Body>
void with_engine(const std::string& name, const Body& body) {
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine({.directory = model(name), .isa = supported_isas().back(), .threads = 2},
                      world);
    body(engine);
  });
}

Tokens random_tokens(std::mt19937& random, std::size_t count) {
  Tokens tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 100);
  return tokens;
}

TEST(KvPool, BytesOfManySequencesDoNotOverflow) {
  with_engine("qwen3_moe-v4-yarn-window-sharded", [](TestEngine& engine) {
    const auto bytes = [&](std::int64_t positions, std::int64_t sequences) {
      return KvPool::bytes_of(engine.config(), Precision::bf16, positions, sequences);
    };
    EXPECT_EQ(bytes(100, 7), 7 * bytes(100, 1));
    EXPECT_EQ(bytes(100, 0), 0);
    EXPECT_EQ(bytes(1'000'000'000'000, 1'000'000), std::int64_t{1} << 50);
  });
}

TEST(KvPool, random_sharing_writing_dropping_and_recomputing_keeps_the_bits) {
  with_engine("qwen3_moe-v4-yarn-window-sharded", [](TestEngine& engine) {
    std::mt19937 random(7);
    Texts texts(engine, 40);
    std::vector<Text> open;
    std::int64_t shares = 0;
    for (int step = 0; step < 150; ++step) {
      const std::size_t choice = open.empty() ? 0 : random() % 8;
      if (choice == 0 && open.size() < 6) {
        open.push_back(texts.empty(0));
      } else if (choice == 1 && open.size() < 6) {
        const std::size_t from = random() % open.size();
        Text text = texts.empty(0);
        const std::int64_t count =
            static_cast<std::int64_t>(random()) % (open[from].sequence.size() + 1);
        ASSERT_EQ(text.sequence.share_prefix(open[from].sequence, count), count);
        text.tokens.assign(open[from].tokens.begin(), open[from].tokens.begin() + count);
        open.push_back(std::move(text));
        ++shares;
      } else if (choice == 2) {
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
      } else if (choice == 3) {
        Text& text = open[random() % open.size()];
        const auto size = static_cast<std::int64_t>(random() % (text.tokens.size() + 1));
        text.sequence.truncate(size);
        text.tokens.resize(static_cast<std::size_t>(size));
      } else {
        Text& text = open[random() % open.size()];
        if (text.tokens.size() > 250) continue;
        texts.feed_and_compare(text, random_tokens(random, 1 + random() % 90));
        ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step;
      }
    }
    EXPECT_GT(shares, 5);
    open.clear();
    EXPECT_EQ(texts.pool().bytes(), 0);
  });
}

TEST(KvPool, a_common_beginning_is_one_set_of_pages_until_it_is_written) {
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    std::mt19937 random(1);
    Texts texts(engine, 100);
    const std::int64_t page = texts.pool().page_bytes();
    Text first = texts.empty(0);
    texts.feed(first, random_tokens(random, 200));  // 3 pages and a part
    EXPECT_EQ(texts.pool().bytes(), 4 * page);
    Text second = texts.empty(0);
    EXPECT_EQ(second.sequence.share_prefix(first.sequence, 200), 200);
    second.tokens = first.tokens;
    EXPECT_EQ(texts.pool().bytes(), 4 * page);
    EXPECT_EQ(second.sequence.bytes(), 4 * page);
    EXPECT_EQ(second.sequence.pages_needed(201), 1) << "a copy";
    texts.feed_and_compare(second, {5});
    EXPECT_EQ(texts.pool().bytes(), 5 * page) << "only the page that was written is a copy";
    EXPECT_EQ(first.sequence.pages_needed(201), 0) << "the other one owns its page again";
    texts.feed_and_compare(first, {6});
    EXPECT_EQ(texts.pool().bytes(), 5 * page);
    second = Text();
    EXPECT_EQ(texts.pool().bytes(), 4 * page);
  });
}

TEST(KvPool, what_is_shared_is_not_computed) {
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    std::mt19937 random(2);
    Texts texts(engine, 100);
    Text first = texts.empty(0);
    texts.feed(first, random_tokens(random, 150));
    engine.transformer().reset_statistics();
    std::vector<Text> rest;
    for (std::int32_t i = 0; i < 10; ++i) {
      rest.push_back(texts.empty(0));
      rest.back().sequence.share_prefix(first.sequence, 128);
      rest.back().tokens.assign(first.tokens.begin(), first.tokens.begin() + 128);
      texts.feed(rest.back(), {i, 3});
    }
    EXPECT_EQ(engine.transformer().computed_positions(), 20);
    EXPECT_EQ(texts.pool().bytes(), (3 + 10) * texts.pool().page_bytes());
    texts.feed_and_compare(rest[4], {9});
  });
}

TEST(KvPool, bytes_are_known_before) {
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    for (const std::int64_t positions : {1, 63, 64, 65, 1000}) {
      KvPool pool(engine.config(), Precision::bf16);
      Sequence sequence = pool.make_sequence(0);
      EXPECT_EQ(pool.bytes(), 0);
      sequence.ensure(positions);
      EXPECT_EQ(pool.bytes(), KvPool::sequence_bytes(engine.config(), Precision::bf16, positions));
    }
  });
}

TEST(KvPool, a_full_pool_refuses_and_goes_on_when_a_sequence_is_dropped) {
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    std::mt19937 random(3);
    Texts texts(engine, 4);
    Text first = texts.empty(0);
    Text second = texts.empty(0);
    texts.feed(first, random_tokens(random, 100));
    texts.feed(second, random_tokens(random, 128));
    const Tokens more = random_tokens(random, 40);
    texts.feed(first, Tokens(more.begin(), more.begin() + 28));  // its two pages are full
    try {
      texts.feed(first, {1});
      FAIL() << "a fifth page";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      EXPECT_NE(std::string(error.what()).find("key-value cache is full"), std::string::npos);
    }
    EXPECT_EQ(first.sequence.size(), 128) << "nothing is lost";
    const Tokens dropped = second.tokens;
    second = Text();
    texts.feed_and_compare(first, {1});
    EXPECT_EQ(texts.pool().peak_bytes(), 4 * texts.pool().page_bytes());
    // What was dropped comes back with the same bits.
    first.sequence.truncate(0);
    first.tokens.clear();
    second = texts.empty(0);
    texts.feed_and_compare(second, dropped);
  });
}

TEST(KvPool, scalings_that_see_the_prompt_share_among_equal_lengths_only) {
  for (const std::string name : {"mixtral-v4-dynamic", "granitemoe-v4-longrope"}) {
    with_engine(name, [](TestEngine& engine) {
      std::mt19937 random(4);
      Texts texts(engine, 100);
      EXPECT_TRUE(texts.pool().depends_on_prompt_length());
      Text first = texts.empty(120);
      texts.feed(first, random_tokens(random, 90));
      Text longer = texts.empty(121);
      EXPECT_EQ(longer.sequence.share_prefix(first.sequence, 80), 0);
      EXPECT_EQ(longer.sequence.size(), 0);
      Text equal = texts.empty(120);
      EXPECT_EQ(equal.sequence.share_prefix(first.sequence, 80), 80);
      equal.tokens.assign(first.tokens.begin(), first.tokens.begin() + 80);
      texts.feed_and_compare(equal, random_tokens(random, 40));
    });
  }
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    EXPECT_FALSE(KvPool(engine.config(), Precision::bf16).depends_on_prompt_length());
  });
}

TEST(KvPool, a_moved_sequence_keeps_its_pages) {
  with_engine("qwen3_moe-v4", [](TestEngine& engine) {
    std::mt19937 random(5);
    Texts texts(engine, 100);
    Text first = texts.empty(0);
    texts.feed(first, random_tokens(random, 70));
    Text second = std::move(first);
    texts.feed_and_compare(second, {4});
    second = texts.empty(0);
    EXPECT_EQ(texts.pool().bytes(), 0);
  });
}

}  // namespace
}  // namespace moesaic
