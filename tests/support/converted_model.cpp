#include "tests/support/converted_model.h"

#include "src/model/model_weights.h"
#include "src/model/weight_converter.h"

namespace moesaic {

void convert_model(const std::string& directory, const WantedLayouts& layouts,
                   const std::string& out) {
  const ModelFiles files = ModelFiles::open(directory);
  const ModelConfig config = read_model_config(directory);
  ModelWeights target;
  const WeightRequest request{.layouts = LayoutChoice(Precision::bf16, layouts),
                              .input_scales = InputScales::own};
  const WeightPlan plan = plan_weights(files, config, request, target);
  PackedManifest manifest = describe_packed(plan.weights);
  PackedOutput output(out, false);
  output.copy_files(directory, manifest);
  output.make_shards(manifest);
  const ShardWriter writer(out, manifest);
  WeightConverter converter(writer);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    converter.convert(plan.weights[i], manifest.entries[i]);
  }
  output.publish(manifest);
}

}  // namespace moesaic
