// A layer's experts in two places give the bytes of one place, whichever slots are where.

#include "src/moe/split_experts.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "kernels/whole_product.h"
#include "src/moe/cpu_experts.h"

namespace moesaic::test {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kWidth = 16;

/// Experts of one layer and rows for them.
class Bed {
 public:
  explicit Bed(std::vector<std::int64_t> rows_of_slots) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto numbers = [&](std::int64_t count) {
      std::vector<float> drawn(static_cast<std::size_t>(count));
      for (float& number : drawn) number = normal(random);
      return drawn;
    };
    const auto matrix = [&](std::int64_t rows, std::int64_t depth) {
      memory_.push_back(pack_matrix({.format = Format::f32}, numbers(rows * depth), rows, depth));
      return memory_.back().matrix;
    };
    for (const std::int64_t rows : rows_of_slots) {
      experts_.push_back({.weights = {.gate = matrix(kWidth, kHidden),
                                      .up = matrix(kWidth, kHidden),
                                      .down = matrix(kHidden, kWidth)}});
      slot_begin_.push_back(slot_begin_.back() + rows);
    }
    x_ = numbers(num_rows() * kHidden);
    for (std::int64_t row = 0; row < num_rows(); ++row) {
      rows_.push_back(reinterpret_cast<const std::byte*>(x_.data() + row * kHidden));
    }
  }

  [[nodiscard]] std::int64_t num_rows() const { return slot_begin_.back(); }
  [[nodiscard]] std::unique_ptr<Experts> cpu(SlotMask own = {}) {
    return std::make_unique<CpuExperts>(experts_, RowSource::Element::f32, work_, std::move(own));
  }
  [[nodiscard]] std::unique_ptr<Experts> split(const SlotMask& own) {
    SlotMask others = own;
    others.flip();
    return std::make_unique<SplitExperts>(cpu(own), cpu(others));
  }
  /// Results of the slots [first, first + count); -1 where nothing was written.
  [[nodiscard]] std::vector<float> run(Experts& experts, std::size_t first, std::size_t count) {
    const auto begin = std::span<const std::int64_t>(slot_begin_).subspan(first, count + 1);
    const std::int64_t rows = begin.back() - begin.front();
    std::vector<float> y(static_cast<std::size_t>(rows * kHidden), -1.0F);
    experts.start({.first_slot = first,
                   .rows = std::span<const std::byte* const>(rows_).subspan(
                       static_cast<std::size_t>(begin.front()), static_cast<std::size_t>(rows)),
                   .slot_begin = begin,
                   .outputs = {y.data(), rows, kHidden}});
    experts.finish();
    return y;
  }

 private:
  std::vector<OwnedMatrix> memory_;
  std::vector<AdaptedMlp> experts_;
  std::vector<std::int64_t> slot_begin_ = {0};
  std::vector<float> x_;
  std::vector<const std::byte*> rows_;
  ThreadPool pool_{2};
  Compute compute_{.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool_};
  GroupedGemm gemm_{compute_};
  AdapterProducts adapters_{compute_, gemm_};
  MlpProducts mlps_{compute_, gemm_, adapters_};
  CpuExpertsWorkspace work_{mlps_};
};

TEST(SplitExperts, give_the_bytes_of_one_place) {
  Bed bed({3, 0, 17, 1, 5});
  const std::unique_ptr<Experts> whole = bed.cpu();
  for (unsigned bits = 0; bits < 32; ++bits) {
    SlotMask own;
    for (unsigned slot = 0; slot < 5; ++slot) own.push_back((bits >> slot & 1U) != 0);
    const std::unique_ptr<Experts> parts = bed.split(own);
    EXPECT_EQ(bed.run(*parts, 0, 5), bed.run(*whole, 0, 5)) << bits;
    EXPECT_EQ(bed.run(*parts, 2, 2), bed.run(*whole, 2, 2)) << bits;
    EXPECT_EQ(bed.run(*parts, 1, 1), std::vector<float>{}) << bits;
  }
}

TEST(SplitExperts, leave_the_slots_of_others_alone) {
  Bed bed({2, 3});
  const std::unique_ptr<Experts> second = bed.cpu({false, true});
  const std::vector<float> whole = bed.run(*bed.cpu(), 0, 2);
  const std::vector<float> part = bed.run(*second, 0, 2);
  for (std::size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i], i < 2 * kHidden ? -1.0F : whole[i]);
  }
}

}  // namespace
}  // namespace moesaic::test
