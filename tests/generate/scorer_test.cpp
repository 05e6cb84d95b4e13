// Scores on ranks that are threads: the same whatever the ranks, the batch or the windows beside.

#include "src/generate/scorer.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "kernels/kernel_table.h"
#include "src/model/finite_rows.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const EngineSetup kScored{.directory = MOESAIC_TEST_DATA "/models/qwen2_moe-v4",
                          .isa = supported_isas().back()};

using Windows = std::vector<ScoreWindow>;

TEST(ScoreWindows, ATextThatFitsIsOne) {
  EXPECT_EQ(cut_windows(2, 8, 4), (Windows{{0, 2, 1}}));
  EXPECT_EQ(cut_windows(8, 8, 4), (Windows{{0, 8, 1}}));
}

TEST(ScoreWindows, EachCountsWhatThoseBeforeHaveNot) {
  EXPECT_EQ(cut_windows(13, 8, 4), (Windows{{0, 8, 1}, {4, 12, 8}, {8, 13, 12}}));
  EXPECT_EQ(cut_windows(9, 8, 7), (Windows{{0, 8, 1}, {7, 9, 8}}));
}

TEST(ScoreWindows, WithoutOverlapTheFirstTokenOfEachDoesNotCount) {
  EXPECT_EQ(cut_windows(12, 5, 5), (Windows{{0, 5, 1}, {5, 10, 6}, {10, 12, 11}}));
  EXPECT_EQ(cut_windows(11, 5, 5), (Windows{{0, 5, 1}, {5, 10, 6}}));
}

TEST(ScoreWindows, EveryTokenButTheFirstCountsOnce) {
  for (const std::int64_t tokens : {2, 7, 30, 31, 100}) {
    for (const std::int64_t context : {2, 3, 10, 64}) {
      for (std::int64_t stride = 1; stride < context; ++stride) {
        std::int64_t next = 1;
        for (const ScoreWindow& window : cut_windows(tokens, context, stride)) {
          EXPECT_EQ(window.first, next);
          EXPECT_LT(window.begin, window.first);
          EXPECT_LE(window.end - window.begin, context);
          next = window.end;
        }
        EXPECT_EQ(next, tokens) << context << " " << stride;
      }
    }
  }
}

TEST(ScoreWindows, RefuseWhatCannotBe) {
  EXPECT_THROW((void)cut_windows(1, 8, 4), Error);
  EXPECT_THROW((void)cut_windows(9, 8, 0), Error);
  EXPECT_THROW((void)cut_windows(9, 8, 9), Error);
  EXPECT_THROW((void)cut_windows(9, 1, 1), Error);
}

TEST(FiniteRows, RememberTheFirstLayer) {
  const std::vector<float> good(4);
  const std::vector<float> bad = {0, 0, std::numeric_limits<float>::infinity(), 0};
  FiniteRows rows(find_vector_kernels(Isa::scalar));
  rows.begin(2);
  rows.look(0, FiniteRows::kEmbedding, good);
  rows.look(1, FiniteRows::kEmbedding, good);
  EXPECT_FALSE(rows.damaged_by(1));
  rows.look(1, 3, bad);
  rows.look(1, 4, bad);
  EXPECT_FALSE(rows.damaged_by(0));
  EXPECT_EQ(rows.damaged_by(1), 3);
}

ScoreDocument document(std::int32_t length, std::int32_t factor) {
  ScoreDocument result;
  for (std::int32_t i = 0; i < length; ++i) result.tokens.push_back(i * factor % 90);
  result.windows = cut_windows(length, 40, 15);
  return result;
}

/// What rank 0 hears, and where it is computed.
struct Heard {
  std::vector<std::vector<TokenScore>> tokens;  // [documents][predicted]
  std::vector<DocumentScore> documents;
  DocumentScore total;
};

Heard score_on(int ranks, const std::vector<ScoreDocument>& documents, const StepOptions& options) {
  Heard heard;
  heard.tokens.resize(documents.size());
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(kScored, world);
    std::int64_t rows = 0;
    const ScoreEvents events{
        .on_tokens =
            [&](const TokenScores& scores) {
              auto& all = heard.tokens[static_cast<std::size_t>(scores.document)];
              EXPECT_EQ(scores.first, std::ssize(all) + 1);  // in order, none left out
              all.insert(all.end(), scores.scores.begin(), scores.scores.end());
            },
        .on_document =
            [&](std::int64_t index, const DocumentScore& score) {
              EXPECT_EQ(index, std::ssize(heard.documents));
              heard.documents.push_back(score);
            },
        .on_logits = [&](const LogitsRows& part) { rows += part.logits.rows(); }};
    const bool first = world.rank() == 0;
    const ScoreResult result =
        score(engine.transformer(), world,
              first ? std::span(documents) : std::span<const ScoreDocument>(), options, events);
    EXPECT_GT(rows, 0) << "rank " << world.rank() << " of " << ranks;
    EXPECT_FALSE(result.damage);
    if (first) heard.total = result.total;
  });
  return heard;
}

TEST(Scorer, WindowsAreSharedOutAndToldInTheirOrderWithTheSameBits) {
  const std::vector<ScoreDocument> documents = {document(130, 7), document(2, 3), document(41, 5),
                                                document(90, 11)};
  const Heard alone = score_on(1, documents, {.batch_tokens = 512, .parallel = 1});
  ASSERT_EQ(alone.documents.size(), documents.size());
  double sum = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    EXPECT_EQ(alone.documents[i].predicted_tokens, std::ssize(documents[i].tokens) - 1);
    EXPECT_EQ(std::ssize(alone.tokens[i]), alone.documents[i].predicted_tokens);
    double loss = 0;
    for (const TokenScore& score : alone.tokens[i]) loss -= score.log_probability;
    EXPECT_EQ(alone.documents[i].loss, loss);
    sum += loss;
  }
  EXPECT_EQ(alone.total.loss, sum);
  EXPECT_EQ(alone.total.predicted_tokens, 129 + 1 + 40 + 89);
  for (const int ranks : {1, 2, 3, 4}) {
    const Heard heard = score_on(ranks, documents, {.batch_tokens = 16, .parallel = 3});
    EXPECT_EQ(heard.total.loss, alone.total.loss) << ranks;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      EXPECT_EQ(heard.documents[i].loss, alone.documents[i].loss) << ranks << " " << i;
      for (std::size_t j = 0; j < alone.tokens[i].size(); ++j) {
        EXPECT_EQ(heard.tokens[i][j].rank, alone.tokens[i][j].rank);
      }
    }
  }
}

TEST(Scorer, ScoresAreThoseOfTheLogits) {
  run_thread_ranks(1, [](Communicator& world) {
    TestEngine engine(kScored, world);
    const ScoreDocument text = document(30, 7);
    std::vector<float> logits;
    std::vector<TokenScore> scores;
    const ScoreEvents events{
        .on_tokens =
            [&](const TokenScores& part) {
              scores.insert(scores.end(), part.scores.begin(), part.scores.end());
            },
        .on_document = {},
        .on_logits =
            [&](const LogitsRows& rows) {
              const float* data = rows.logits.data();
              logits.insert(logits.end(), data, data + rows.logits.rows() * rows.logits.cols());
            }};
    (void)score(engine.transformer(), world, {&text, 1}, {.batch_tokens = 7}, events);
    const auto vocab = static_cast<std::size_t>(engine.config().vocab_size);
    ASSERT_EQ(logits.size(), 30 * vocab);
    ASSERT_EQ(scores.size(), 29U);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::span<const float> row = std::span(logits).subspan(i * vocab, vocab);
      const auto token = static_cast<std::size_t>(text.tokens[i + 1]);
      double sum = 0;
      std::int64_t rank = 1;
      for (std::size_t j = 0; j < vocab; ++j) {
        sum += std::exp(static_cast<double>(row[j]));
        if (row[j] > row[token] || (row[j] == row[token] && j < token)) ++rank;
      }
      EXPECT_NEAR(scores[i].log_probability, static_cast<double>(row[token]) - std::log(sum), 1e-5);
      EXPECT_EQ(scores[i].rank, rank);
    }
  });
}

TEST(Scorer, AContinuationIsScoredAlone) {
  std::vector<ScoreDocument> whole = {document(39, 7)};
  std::vector<ScoreDocument> pair = whole;
  pair.front().windows = {{.begin = 0, .end = 39, .first = 30}};
  std::vector<TokenScore> scores;
  const Heard all = score_on(1, whole, {});
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(kScored, world);
    const ScoreResult result =
        score(engine.transformer(), world, pair, {},
              {.on_tokens =
                   [&](const TokenScores& part) {
                     EXPECT_EQ(part.first, 30 + std::ssize(scores));
                     scores.insert(scores.end(), part.scores.begin(), part.scores.end());
                   },
               .on_document = {},
               .on_logits = {}});
    EXPECT_EQ(result.total.predicted_tokens, 9);
  });
  ASSERT_EQ(scores.size(), 9U);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(scores[i].log_probability, all.tokens[0][29 + i].log_probability);
  }
}

TEST(Scorer, DocumentsThatEndInTheStepThatIsAskedToStopAreComplete) {
  const std::vector<ScoreDocument> documents = {document(20, 7)};
  for (const int asked : {0, 1}) {
    run_thread_ranks(2, [&](Communicator& world) {
      TestEngine engine(kScored, world);
      const bool first = world.rank() == 0;
      const ScoreResult result =
          score(engine.transformer(), world,
                first ? std::span(documents) : std::span<const ScoreDocument>(),
                {.stop_wanted = [&] { return world.rank() == asked; }}, {});
      EXPECT_TRUE(result.complete) << "rank " << world.rank() << ", asked " << asked;
      EXPECT_EQ(result.total.predicted_tokens, first ? 19 : 0);
    });
  }
}

}  // namespace
}  // namespace moesaic
