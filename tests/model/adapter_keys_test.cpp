// Keys of adapters of a model that is in transformers 5 alone, and reads images too.

#include <gtest/gtest.h>

#include "src/lora/adapter_files.h"
#include "src/model/model_adapters.h"
#include "src/model/model_config.h"
#include "src/model/model_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

const std::string kTextAdapter = MOESAIC_TEST_DATA "/adapters/qwen3_5_moe";

std::vector<AdapterSite> text_sites() {
  const std::string model = MOESAIC_TEST_DATA "/models/qwen3_5_moe-v5";
  return adapter_sites(ModelFiles::open(model).names(read_model_config(model)));
}

/// The adapter in qwen3_5_moe, some of whose keys are renamed.
AdapterFiles renamed_adapter(const std::string& prefix, const std::string& to, bool keeps_first) {
  const SafetensorsFile file = SafetensorsFile::open(kTextAdapter + "/adapter_model.safetensors");
  std::vector<TensorView> tensors(file.tensors().begin(), file.tensors().end());
  if (keeps_first) tensors.push_back(tensors.front());
  for (std::size_t i = keeps_first ? 1 : 0; i < tensors.size(); ++i) {
    tensors[i].name = test::replaced(tensors[i].name, prefix, to);
  }
  return AdapterFiles::parse(Json::read_file(kTextAdapter + "/adapter_config.json"),
                             std::move(tensors), text_sites(), "here");
}

TEST(AdapterFiles, KeysOfAModelThatReadsImagesTooAreThoseOfItsTextModel) {
  const auto expected = AdapterFiles::open(kTextAdapter, text_sites()).specs().size();
  for (const std::string whole : {"model.language_model.layers.", "language_model.model.layers."}) {
    const AdapterFiles files = renamed_adapter("model.model.layers.", "model." + whole, false);
    EXPECT_EQ(files.specs().size(), expected);
    const std::string error = test::error_message(
        [&] { (void)renamed_adapter("model.model.layers.", "model." + whole, true); });
    EXPECT_TRUE(error.starts_with("here: \"base_model.model.model.layers.")) << error;
    EXPECT_TRUE(error.ends_with("are for one module")) << error;
  }
}

TEST(AdapterFiles, NamesOfExpertsHitSharedOnesAloneInFamiliesOfTransformers5) {
  std::string config = test::read_text(kTextAdapter + "/adapter_config.json");
  const std::size_t begin = config.find('[', config.find("\"target_parameters\""));
  config.replace(begin, config.find(']', begin) + 1 - begin, "[]");
  const SafetensorsFile file = SafetensorsFile::open(kTextAdapter + "/adapter_model.safetensors");
  std::vector<TensorView> tensors(file.tensors().begin(), file.tensors().end());
  std::erase_if(tensors, [](const TensorView& tensor) {
    return tensor.name.find(".experts.") != std::string::npos;
  });
  const AdapterFiles files = AdapterFiles::parse(Json::parse(config, "adapter_config.json"),
                                                 std::move(tensors), text_sites(), "here");
  EXPECT_EQ(files.description().layout, AdapterLayout::transformers5);
  std::int64_t shared = 0;
  for (const AdapterSpec& spec : files.specs()) {
    EXPECT_LT(spec.site.expert, 0) << spec.site.module;
    shared += spec.site.kind == AdapterKind::shared ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
}

}  // namespace
}  // namespace moesaic
