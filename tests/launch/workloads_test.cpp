#include "launch/job/workloads.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

TEST(Workloads, TextsThatGoOnHaveTheirTokensInABatchThatIsSmaller) {
  Options options;
  options.batch_size = 2;
  options.parallel = 8;
  options.ctx_size = 100;
  const TextSizes sizes{.texts = 40, .longest_prompt = 10, .longest_text = 20};
  EXPECT_EQ(generate_workload(options, 1, sizes).batch_tokens, 8);
  EXPECT_EQ(generate_workload(options, 10, sizes).batch_tokens, 4);
  EXPECT_EQ(open_workload(options, ModelConfig()).batch_tokens, 8);
  options.batch_size = 64;
  EXPECT_EQ(generate_workload(options, 1, sizes).batch_tokens, 64);
  EXPECT_EQ(generate_workload(options, 10, sizes).batch_tokens, 40);
  EXPECT_EQ(open_workload(options, ModelConfig()).batch_tokens, 64);
}

}  // namespace
}  // namespace moesaic
