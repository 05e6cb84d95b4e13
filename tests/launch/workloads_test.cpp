#include "launch/job/workloads.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

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

TEST(Workloads, MlpsAloneKeepWhatTheirAdaptersMake) {
  const auto spec = [](std::int64_t layer, std::int64_t expert, std::optional<MlpPart> part) {
    AdapterSpec adapter;
    adapter.site.layer = layer;
    adapter.site.expert = expert;
    adapter.site.part = part;
    adapter.rank = 8;
    return adapter;
  };
  const std::vector<AdapterSpec> adapters = {
      spec(0, -1, {}),           spec(0, -1, {}),           spec(0, -1, MlpPart::up),
      spec(1, -1, {}),           spec(1, 0, MlpPart::gate), spec(1, 1, MlpPart::gate),
      spec(1, 1, MlpPart::down),
  };
  const InnerNumbers numbers = inner_numbers(adapters, 4);
  EXPECT_EQ(numbers.kept, 8 + 4 * 2 * 8);
  EXPECT_EQ(numbers.largest, 4 * 2 * 8);
  EXPECT_EQ(numbers.working, 2 * (2 * 8 + 4 * 2 * 8)) << "of a mixer and of an MLP";
}

}  // namespace
}  // namespace moesaic
