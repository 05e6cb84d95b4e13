#include "src/parallel/machine_rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "src/parallel/expert_popularity.h"
#include "tests/parallel/test_machine.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::test_machine;

TEST(ProductCurve, goes_through_what_was_measured) {
  const ProductCurve curve{.rows = {1, 16, 64},
                           .seconds_per_weight = {1, 2, 8},
                           .cached_seconds_per_weight = {.sizes = {1, 16}, .values = {0.25, 1.5}}};
  EXPECT_EQ(curve.seconds(0.5, 10), 10);
  EXPECT_EQ(curve.seconds(1, 10), 10);
  EXPECT_EQ(curve.seconds(16, 10), 20);
  EXPECT_EQ(curve.seconds(40, 10), 50);
  EXPECT_EQ(curve.seconds(128, 10), 160);
  // Weights in a cache, or half of what it takes to read them; of more rows the same is saved.
  EXPECT_DOUBLE_EQ(curve.seconds(1, 10, 0), 2.5);
  EXPECT_DOUBLE_EQ(curve.seconds(1, 10, 0.5), 6.25);
  EXPECT_DOUBLE_EQ(curve.seconds(64, 10, 0), 75);
  const MachineRates machine = test_machine();
  EXPECT_EQ(machine.coldness(1e5), 0);
  EXPECT_EQ(machine.coldness(1e10), 1);
  EXPECT_GT(machine.coldness(5e8), machine.coldness(5e7));
}

class MachineFile : public ::testing::Test {
 protected:
  void write(const std::string& text) const { test::write_text(path_, text); }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path_of("machine.json");
};

TEST_F(MachineFile, is_read_as_it_was_written) {
  const std::string text = test_machine().text();
  write(text);
  MachineRates machine = read_machine_rates(path_);
  EXPECT_EQ(machine.path, path_);
  EXPECT_EQ(machine.text(), text);
  EXPECT_EQ(machine.between->all_ranks_bytes_per_second, 2e9);
  EXPECT_EQ(machine.products.at(Format::int8).seconds_per_weight[2], 4e-12);
}

TEST_F(MachineFile, has_a_gpu_or_none) {
  MachineRates machine = test_machine();
  write(machine.text());
  const GpuRates gpu = read_machine_rates(path_).gpu.value();
  EXPECT_EQ(gpu.name, "a GPU, sm_90");
  EXPECT_EQ(gpu.flops_per_second, machine.gpu->flops_per_second);
  EXPECT_EQ(gpu.upload_bytes_per_second, 2e10);
  EXPECT_EQ(gpu.download_bytes_per_second, 1e10);
  EXPECT_EQ(gpu.wait_seconds, 1e-5);
  machine.gpu.reset();
  std::string text = machine.text();
  write(text);
  EXPECT_FALSE(read_machine_rates(path_).gpu.has_value());
  // As it was written before there were GPUs in it.
  const std::string field = "\"gpu\": null, ";
  ASSERT_NE(text.find(field), std::string::npos) << text;
  write(text.erase(text.find(field), field.size()));
  EXPECT_FALSE(read_machine_rates(path_).gpu.has_value());
}

TEST_F(MachineFile, refuses_what_it_cannot_hold) {
  const std::string good = test_machine().text();
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write(text);
    return error_message([&] { (void)read_machine_rates(path_); }, ErrorKind::file);
  };
  EXPECT_EQ(refusal("\"moesaic_machine\": 2", "\"moesaic_machine\": 1"),
            path_ +
                ": moesaic_machine: version 1; this program reads 2: measure again with moesaic "
                "doctor --measure");
  EXPECT_EQ(refusal("\"cores\": 4", "\"cores\": 0"), path_ + ": cores: 0 is not from 1 to 1048576");
  EXPECT_EQ(refusal("\"cores\": 4", "\"cores\": 3000000000"),
            path_ + ": cores: 3000000000 is not from 1 to 1048576");
  EXPECT_EQ(refusal("\"cores\": 4", "\"cores\": 2.5"),
            path_ + ": cores: expected an integer, found number 2.5");
  EXPECT_EQ(refusal("\"rank_bytes\": 4194304", "\"rank_bytes\": -1"),
            path_ + ": rank_bytes: -1 is no amount");
  EXPECT_EQ(refusal("\"int8\"", "\"int9\""),
            path_ + ": products.int9: there is no format \"int9\"");
  EXPECT_EQ(refusal("[1, 16, 64]", "[1, 64, 16]"),
            path_ + ": products.f32: rows ascend, and each has its seconds_per_weight");
  EXPECT_EQ(refusal("\"result_seconds\"", "\"results\""),
            path_ + ": products.f32: field \"result_seconds\" is missing");
  EXPECT_EQ(refusal("\"mma\": ", "\"mma\": -"),
            path_ + ": gpu.flops_per_second.mma: -400000000000000 is no rate");
  EXPECT_EQ(refusal("\"call_seconds\"", "\"calls\""),
            path_ + ": gpu: field \"call_seconds\" is missing");
  EXPECT_EQ(refusal("\"rotate\"", "\"turn\""), path_ + ": row_ops: field \"rotate\" is missing");
}

TEST_F(MachineFile, popularity_is_read_from_the_rows_of_experts) {
  write(R"({"experts_per_token": 1, "rows": [[1, 3], [2, 2]]})");
  const auto popularity = ExpertPopularity::from_text(path_);
  EXPECT_EQ(popularity.source(), path_);
  const std::vector<double> rates = popularity.rates(0, 2);
  EXPECT_NEAR(1 - std::exp(-rates[1]), 0.75, 1e-9);
  EXPECT_THROW((void)popularity.rates(2, 2), Error);
  EXPECT_THROW((void)popularity.rates(0, 3), Error);
  for (const char* bad :
       {R"({"experts_per_token": 1, "rows": []})",
        R"({"experts_per_token": 1, "rows": [[1, 3], [2]]})",
        R"({"experts_per_token": 3, "rows": [[1, 3]]})",
        R"({"experts_per_token": 1, "rows": [[0, 0]]})",
        R"({"experts_per_token": 1, "rows": [[-1, 3]]})", R"({"experts_per_token": 1})"}) {
    write(bad);
    EXPECT_THROW((void)ExpertPopularity::from_text(path_), Error) << bad;
  }
  EXPECT_THROW((void)ExpertPopularity::from_text("zipf:x"), Error);
  EXPECT_THROW((void)ExpertPopularity::from_text(path_ + ".missing"), Error);
  EXPECT_EQ(ExpertPopularity::from_text("zipf:1").rates(0, 4).size(), 4U);
}

}  // namespace
}  // namespace moesaic
