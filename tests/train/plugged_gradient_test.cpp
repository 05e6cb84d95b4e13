// A kind of mixer that only tests know is trained: what that takes is make_stash() and backward().

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread_communicator.h"
#include "src/train/sample_pass.h"
#include "tests/support/recurrence.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using Values = std::map<std::string, std::vector<double>>;  // by module: of A, then of B

/// How samples go through the model, and what its adapters are moved by.
struct Way {
  int ranks = 1;
  int threads = 1;
  Recompute recompute = Recompute::never;
  const Values* direction = nullptr;
  double step = 0;  // along it
};

/// Adapters of all that can have one; no factor is zero.
AdapterSet make_adapters(std::vector<AdapterSite> sites, const HeldExperts& held, const Way& run) {
  std::vector<AdapterSpec> specs;
  for (AdapterSite& site : sites) {
    specs.push_back({.site = std::move(site), .rank = 2, .alpha = 4, .scale = 2});
  }
  AdapterSet set(specs_of_rank(specs, held), Format::f32);
  initialize(set, 3);
  for (std::int64_t index = 0; index < set.size(); ++index) {
    const MatrixView<float> b = set.factors(index).b;
    for (std::int64_t i = 0; i < b.rows() * b.cols(); ++i)
      b.data()[i] = i % 2 == 0 ? 0.03F : -0.02F;
  }
  if (run.direction == nullptr) return set;
  for (std::int64_t index = 0; index < set.size(); ++index) {
    const auto found = run.direction->find(set.spec(index).site.module);
    if (found == run.direction->end()) continue;
    const AdapterFactors<float> factors = set.factors(index);
    auto by = found->second.begin();
    for (const MatrixView<float>& factor : {factors.a, factors.b}) {
      for (std::int64_t i = 0; i < factor.rows() * factor.cols(); ++i, ++by) {
        factor.data()[i] += static_cast<float>(run.step * *by);
      }
    }
  }
  return set;
}

struct Found {
  double loss = 0;
  std::map<std::string, std::vector<std::int64_t>> sums;  // as Values
};

class PluggedGradient : public testing::Test {
 protected:
  PluggedGradient() {
    for (std::int32_t s = 0; s < 3; ++s) {
      for (std::int32_t i = 0; i < 5 + 4 * s; ++i) {
        tokens_[static_cast<std::size_t>(s)].push_back((7 * i * i + 31 * s + 3) % 150);
      }
      const std::vector<std::int32_t>& tokens = tokens_[static_cast<std::size_t>(s)];
      samples_.push_back({.tokens = tokens, .labels = tokens});
    }
  }

  [[nodiscard]] Found run(const Way& how) const {
    Found all;
    std::mutex mutex;
    run_thread_ranks(how.ranks, [&](Communicator& world) {
      const auto adapters = [&](std::vector<AdapterSite> sites, const HeldExperts& held) {
        return make_adapters(std::move(sites), held, how);
      };
      TestEngine engine({.directory = checkpoint_.directory(),
                         .precision = Precision::f32,
                         .isa = supported_isas().back(),
                         .threads = how.threads,
                         .adapters = adapters,
                         .families = test::families_with_recurrence()},
                        world);
      SamplePass pass(engine.transformer(), how.recompute);
      AdapterGradients gradients(engine.adapters().places(),
                                 find_vector_kernels(supported_isas().back()));
      std::vector<TrainSample> own;
      for (std::size_t s = 0; s < samples_.size(); ++s) {
        if (static_cast<int>(s) % how.ranks == world.rank()) own.push_back(samples_[s]);
      }
      MicroBatch batch = pass.forward(own);
      double loss = 0;
      for (const double of_sample : batch.losses) loss += of_sample;
      pass.backward(std::move(batch), gradients);
      const std::scoped_lock lock(mutex);
      all.loss += loss;
      add_sums(engine.adapters(), gradients, all);
    });
    return all;
  }

 private:
  static void add_sums(const AdapterSet& set, const AdapterGradients& gradients, Found& all) {
    for (std::int64_t index = 0; index < set.size(); ++index) {
      const auto& [a, b] = set.places()[static_cast<std::size_t>(index)];
      std::vector<std::int64_t>& to = all.sums[set.spec(index).site.module];
      to.resize(static_cast<std::size_t>(a.size() + b.size()));
      auto sum = to.begin();
      for (const FactorPlace& place : {a, b}) {
        for (std::int64_t i = 0; i < place.size(); ++i) {
          *sum++ += gradients.sums()[static_cast<std::size_t>(place.first + i)];
        }
      }
    }
  }

  test::RecurrentCheckpoint checkpoint_;
  std::array<std::vector<std::int32_t>, 3> tokens_;
  std::vector<TrainSample> samples_;
};

TEST_F(PluggedGradient, is_that_of_differences_of_the_loss) {
  const Found found = run({});
  constexpr double kDistance = 2e-2;  // that adapters are moved by, to both sides
  for (const char* const module :
       {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj",
        "model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.o_proj",
        "model.layers.1.self_attn.v_proj", "model.layers.0.mlp.experts.3.up_proj"}) {
    Values direction;
    double squares = 0;
    for (const std::int64_t sum : found.sums.at(module)) {
      direction[module].push_back(AdapterGradients::value(sum));
      squares += direction[module].back() * direction[module].back();
    }
    const double length = std::sqrt(squares);
    const auto moved = [&](double distance) {
      return run({.direction = &direction, .step = distance / length}).loss;
    };
    EXPECT_NEAR((moved(kDistance) - moved(-kDistance)) / (2 * kDistance), length, 0.01 * length)
        << module;
  }
}

TEST_F(PluggedGradient, bits_do_not_depend_on_how_it_is_run) {
  const Found expected = run({});
  for (const Way& how : {Way{.threads = 2}, Way{.recompute = Recompute::always}, Way{.ranks = 2},
                         Way{.ranks = 3, .threads = 2, .recompute = Recompute::always}}) {
    const Found found = run(how);
    EXPECT_TRUE(found.sums == expected.sums)
        << how.ranks << " ranks, " << how.threads << " threads";
  }
}

}  // namespace
}  // namespace moesaic
