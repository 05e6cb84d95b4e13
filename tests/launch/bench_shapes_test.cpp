// Shapes and formats by name, as benchmarks take them.

#include "launch/shapes/named_shapes.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/model/weight_layout.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

template <typename Parse>
std::string usage_error(const Parse& parse, std::string_view list) {
  return test::error_message([&] { static_cast<void>(parse(list)); }, ErrorKind::usage);
}

TEST(BenchShapes, ModelsStandForTheirMatrices) {
  EXPECT_EQ(parse_shapes("qwen3-30b,37x1001"),
            (std::vector<MatrixShape>{{768, 2048}, {2048, 768}, {37, 1001}}));
  EXPECT_EQ(parse_shapes("768x2048,qwen3-30b").size(), 2U);
  EXPECT_EQ(parse_shapes("768x2048, qwen3-30b").size(), 2U);
  EXPECT_EQ(parse_shapes("768x2048").front().name(), "768x2048");
}

TEST(BenchShapes, WrongShapesAreNamed) {
  EXPECT_NE(usage_error(parse_shapes, "mixtrl").find("did you mean mixtral?"), std::string::npos);
  for (const char* bad : {"", "12", "12x", "x12", "0x12", "12x-1", "12x12x12", "3000000x8"}) {
    EXPECT_NE(usage_error(parse_shapes, bad).find("--shapes"), std::string::npos) << bad;
  }
}

TEST(BenchShapes, FormatsAreThoseOfTheProgram) {
  EXPECT_EQ(parse_formats("all").size(), 12U);
  const std::vector<Layout> layouts = parse_formats("int4_group64,AMXINT4,f32");
  EXPECT_EQ(layouts[0], (Layout{.format = Format::int4_group, .group = 64}));
  EXPECT_EQ(layouts[1], (Layout{.format = Format::int4}));
  EXPECT_EQ(layouts[2], (Layout{.format = Format::f32}));
  EXPECT_EQ(parse_formats("int4_group64, AMXINT4, f32"), layouts);
  EXPECT_NE(usage_error(parse_formats, "bf16,nvfp5").find("did you mean nvfp4?"),
            std::string::npos);
}

TEST(BenchShapes, LayersAreModelsOrFourNumbers) {
  EXPECT_EQ(parse_layers("granite,4,64,32,2,mixtral"),
            (std::vector<LayerShape>{{32, 1024, 512, 8}, {4, 64, 32, 2}, {8, 4096, 14336, 2}}));
  EXPECT_EQ(parse_layers("granite, 4, 64, 32, 2").size(), 2U);
  EXPECT_EQ(parse_layers("4x64x32x2, granite,4,64,32,2"),
            parse_layers("4,64,32,2,granite,4,64,32,2"));
  for (const char* bad : {"", "4,64,32", "4,64,32,5", "4,64,32,2,1", "65,64,32,2", "grnite"}) {
    EXPECT_NE(usage_error(parse_layers, bad).find("--layer"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace moesaic
