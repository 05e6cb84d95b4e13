// What MoE layers send between nodes: how many messages, which rows once for several ranks, and in
// which order ranks await rows, compute and send results.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/moe/forwarding_rows.h"
#include "tests/moe/small_layers.h"
#include "tests/support/counter.h"

namespace moesaic::test {
namespace {

/// Notes what the exchanges of a rank send to other nodes.
class CountingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    const std::int64_t before = row_counters().bytes_far;
    PendingRows rows = base().exchange_rows(send, expected);
    ++phases[send.label.phase.data()];
    messages += num_messages(row_counters().bytes_far - before, send);
    return rows;
  }

  std::map<std::string, int> phases;  // how many exchanges each has had
  std::int64_t messages = 0;          // that all of them need, where there are two ranks

 private:
  /// Of nearly 64 KiB each. If rows come later and there are more: one of all but the rows, and
  /// those of the rows.
  static std::int64_t num_messages(std::int64_t bytes, const RowSend& send) {
    constexpr std::int64_t kPiece = 65536 - 256;
    const auto pieces = [](std::int64_t of) { return (of + kPiece - 1) / kPiece; };
    if (bytes <= kPiece || send.later_rows == 0) return std::max<std::int64_t>(1, pieces(bytes));
    return 1 + pieces(std::ssize(send.rows) * send.row_bytes);
  }
};

struct Nodes {
  int ranks;
  int per_node;

  [[nodiscard]] int number() const { return (ranks + per_node - 1) / per_node; }
};

/// Layers that defer so many choices but for the last, with a batch, or two in turn.
struct Passes {
  std::int64_t defer;
  int batches;
};

/// All layers, each for `tokens` of this rank's own; what it has chosen in each, if wanted.
void run_passes(std::span<const Model> layers, Communicator& world, const Passes& passes,
                std::int64_t tokens, std::vector<std::vector<ExpertId>>* choices = nullptr) {
  Rank rank(layers, world, 1);
  std::vector<MoeWorkspace> work;
  for (int batch = 0; batch < passes.batches; ++batch) work.push_back(rank.workspace());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<std::vector<float>> x;
    for (std::size_t batch = 0; batch < work.size(); ++batch) {
      const std::int64_t share = tokens / passes.batches;
      x.push_back(rank.inputs(
          {world.rank() * tokens + static_cast<std::int64_t>(batch) * share, share}, l));
      if (choices != nullptr) work[batch].choices = &choices->emplace_back();
      work[batch].defer = l + 1 < layers.size() ? passes.defer : 0;
      rank.begin(x.back(), work[batch], l);
    }
    for (std::size_t batch = 0; batch < work.size(); ++batch)
      (void)rank.end(x[batch], work[batch], l);
  }
}

TEST(FarLayers, a_rank_sends_two_messages_a_layer_to_each_node_or_three_if_it_defers) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12), Model(Shape{}, 13)};
  for (const Nodes& nodes : {Nodes{2, 1}, Nodes{3, 1}, Nodes{4, 2}, Nodes{5, 2}}) {
    for (const Passes& passes : {Passes{0, 1}, Passes{1, 1}, Passes{3, 1}, Passes{2, 2}}) {
      const int in_layers = passes.defer == 0 ? 2 * 3 : 3 * 2 + 2;  // the last defers nothing
      const auto body = [&](Communicator& world) {
        run_passes(layers, world, passes, 12);
        EXPECT_EQ(world.row_counters().messages, in_layers * passes.batches * (nodes.number() - 1))
            << nodes.ranks << " ranks, " << passes.defer << " deferred";
      };
      run_thread_ranks(nodes.ranks, body, {.ranks_per_node = nodes.per_node});
    }
  }
}

TEST(FarLayers, large_messages_are_the_first_and_the_pieces_that_it_announces) {
  const Shape large{.experts = 4, .hidden = 4096, .intermediate = 8, .topk = 2};
  const std::array layers = {Model(large, 11), Model(large, 12)};
  for (const Passes& passes : {Passes{0, 1}, Passes{1, 1}, Passes{1, 2}}) {
    const auto body = [&](Communicator& world) {
      CountingCommunicator counting(world);
      run_passes(layers, counting, passes, 30);
      EXPECT_EQ(world.row_counters().messages, counting.messages);
      EXPECT_GT(counting.messages, 2 * 3 * passes.batches * 2) << "or the test shows nothing";
      std::map<std::string, int> phases = {{"rows", 2 * passes.batches},
                                           {"results", 2 * passes.batches}};
      if (passes.defer > 0) phases["deferred"] = passes.batches;
      EXPECT_EQ(counting.phases, phases);
    };
    run_thread_ranks(2, body, {.ranks_per_node = 1});
  }
}

/// Rows that a token does not send because another rank of their node gets it anyway.
std::int64_t rows_saved(std::span<const ExpertId> experts, const ExpertPlacement& placement,
                        int rank, int per_node) {
  std::map<int, std::set<int>> ranks_of_node;
  for (const ExpertId expert : experts) {
    const int owner = placement.rank_of(expert);
    if (owner / per_node != rank / per_node) ranks_of_node[owner / per_node].insert(owner);
  }
  std::int64_t saved = 0;
  for (const auto& [node, ranks] : ranks_of_node) saved += std::ssize(ranks) - 1;
  return saved;
}

TEST(FarLayers, saved_rows_are_those_that_the_routing_says) {
  const Shape shape{.experts = 12, .hidden = 40, .intermediate = 24, .topk = 5};
  const std::array layers = {Model(shape, 11), Model(shape, 12)};
  std::atomic<std::int64_t> all = 0;
  for (const Nodes& nodes : {Nodes{4, 2}, Nodes{5, 2}, Nodes{6, 3}}) {
    for (const Passes& passes : {Passes{0, 1}, Passes{2, 1}, Passes{5, 2}}) {
      const auto body = [&](Communicator& world) {
        std::vector<std::vector<ExpertId>> choices;
        run_passes(layers, world, passes, 10, &choices);
        std::int64_t expected = 0;
        const ExpertPlacement placement(shape.experts, nodes.ranks);
        for (const std::vector<ExpertId>& of_batch : choices) {
          for (std::size_t first = 0; first < of_batch.size(); first += 5) {
            expected += rows_saved(std::span(of_batch).subspan(first, 5), placement, world.rank(),
                                   nodes.per_node);
          }
        }
        EXPECT_EQ(world.row_counters().rows_saved, expected)
            << nodes.ranks << " ranks, " << passes.defer << " deferred";
        all += expected;
      };
      run_thread_ranks(nodes.ranks, body, {.ranks_per_node = nodes.per_node});
    }
  }
  EXPECT_GT(all, 500) << "or the test shows nothing";
}

// Two ranks of different nodes: rank 0 has tokens for two experts of rank 1, which has tokens of
// its own for a third.
constexpr std::int64_t kForFirst = 30;  // and one token for the second expert
constexpr std::int64_t kOwn = 5;

/// Rows from rank 0, of which none is here before they are waited for, and the last one not before
/// rank 0 has results of others.
class HeldRows final : public ForwardingRows {
 public:
  HeldRows(PendingRows rows, const Counter& results, std::vector<std::string>& events)
      : ForwardingRows(std::move(rows)), results_(results), events_(events) {}

  [[nodiscard]] std::int64_t num_here(int peer) const override {
    return peer == 0 ? here_ : ForwardingRows::num_here(peer);
  }
  void wait_for_more() override {
    events_.emplace_back("waits");
    (void)rows().wait();
    if (here_ == 0) {
      here_ = kForFirst;
      return;
    }
    results_.wait_for(1, [] {});
    events_.emplace_back(results_.count() > 0 ? "results have left" : "no result has left");
    here_ = kForFirst + 1;
  }

 private:
  const Counter& results_;
  std::vector<std::string>& events_;
  std::int64_t here_ = 0;
};

/// Results that note which of them are computed, or that some have come.
class NotedResults final : public ForwardingRows {
 public:
  NotedResults(PendingRows rows, Counter& results, std::vector<std::string>& events)
      : ForwardingRows(std::move(rows)), results_(results), events_(events) {}

  void mark_ready(std::int64_t first, std::int64_t count) override {
    if (count > 0) events_.push_back(std::to_string(first) + "+" + std::to_string(count));
    ForwardingRows::mark_ready(first, count);
  }
  const ReceivedRows& wait() override {
    while (!rows().is_done()) {
      if (rows().has_tags() && rows().num_here(1) > 0) results_.add();
    }
    return rows().wait();
  }

 private:
  Counter& results_;
  std::vector<std::string>& events_;
};

class HoldingCommunicator final : public ForwardingCommunicator {
 public:
  HoldingCommunicator(Communicator& base, Counter& results)
      : ForwardingCommunicator(base), results_(results) {}

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    PendingRows rows = base().exchange_rows(send, expected);
    if (send.tag_bytes == 0) {
      return PendingRows(noted_.emplace_back(std::move(rows), results_, events));
    }
    if (rank() == 0) return rows;
    return PendingRows(held_.emplace_back(std::move(rows), results_, events));
  }

  std::vector<std::string> events;

 private:
  Counter& results_;
  std::deque<HeldRows> held_;
  std::deque<NotedResults> noted_;
};

TEST(FarLayers, experts_run_and_results_leave_before_the_last_row_has_come) {
  const Model model(Shape{.experts = 6, .hidden = 1024, .intermediate = 8, .topk = 1});
  Counter results;
  std::vector<std::string> events;
  const auto body = [&](Communicator& world) {
    HoldingCommunicator holding(world, results);
    Rank rank(model, holding, 1);
    MoeWorkspace work = rank.workspace();
    std::vector<ExpertId> choices(static_cast<std::size_t>(kOwn), ExpertId{5});
    if (world.rank() == 0) {
      choices.assign(static_cast<std::size_t>(kForFirst), ExpertId{3});
      choices.push_back(ExpertId{4});
    }
    work.choices = &choices;
    const std::vector<float> x = rank.inputs({0, std::ssize(choices)});
    rank.begin(x, work);
    (void)rank.end(x, work);
    if (world.rank() == 1) events = holding.events;
  };
  run_thread_ranks(2, body, {.ranks_per_node = 1});
  EXPECT_EQ(events, std::vector<std::string>(
                        {"31+5", "waits", "0+30", "waits", "results have left", "30+1"}));
}

}  // namespace
}  // namespace moesaic::test
