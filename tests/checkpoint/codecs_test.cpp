// Quantised matrices that no library's golden file shows: what is refused and how the message
// reads, and what the tensors alone cannot tell.

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "src/checkpoint/matrix_source.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::tensor;
using test::TensorData;
using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

constexpr std::uint8_t kOne = 0x38;  // e4m3

/// A checkpoint of one matrix, "x.weight" or what `shape` says.
class Codecs : public testing::Test {
 protected:
  MatrixSource open(const std::vector<TensorData>& tensors, std::vector<std::int64_t> shape,
                    const std::string& config = "") {
    checkpoint_.emplace(test::write_checkpoint(directory_, config, tensors));
    const std::int64_t rows = shape[0];
    const std::int64_t cols = shape[1];
    return {*checkpoint_, {"x.weight", std::move(shape), 0, rows, cols}};
  }
  /// The message of the error, without the file.
  std::string refusal(const std::vector<TensorData>& tensors, std::vector<std::int64_t> shape,
                      const std::string& config = "") {
    return after_file(test::error_message([&] { (void)open(tensors, std::move(shape), config); }));
  }
  std::string after_file(const std::string& message) const {
    const std::string file = directory_.path_of("model.safetensors") + ": ";
    return message.starts_with(file) ? message.substr(file.size()) : message;
  }
  static Floats rows_of(const MatrixSource& source) {
    Floats rows(static_cast<std::size_t>(source.rows() * source.cols()));
    source.read_rows(0, source.rows(), std::span(rows));
    return rows;
  }

  test::TemporaryDirectory directory_;
  std::optional<Checkpoint> checkpoint_;
};

TensorData f8(const std::string& name, std::vector<std::int64_t> shape) {
  const auto count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return tensor(name, DType::f8_e4m3, std::move(shape),
                Bytes(static_cast<std::size_t>(count), kOne));
}

// ------------------------------------------------------------------------------------------- fp8

TEST_F(Codecs, block_sizes_come_from_the_configuration_not_from_shapes) {
  // 2 x 2 scales of 192 x 192 weights: blocks of 128, the last ones partial, or of 96?
  const std::vector<TensorData> tensors = {
      f8("x.weight", {192, 192}),
      tensor("x.weight_scale_inv", DType::f32, {2, 2}, Floats{1, 2, 3, 4})};
  const Floats rows = rows_of(open(tensors, {192, 192}));
  EXPECT_EQ(rows[127 * 192 + 127], 1);
  EXPECT_EQ(rows[127 * 192 + 128], 2);
  EXPECT_EQ(rows[128 * 192 + 127], 3);
  EXPECT_EQ(rows[128 * 192 + 128], 4);
  const std::string narrow = R"({"quant_method": "fp8", "weight_block_size": [96, 96]})";
  const MatrixSource source = open(tensors, {192, 192}, narrow);
  EXPECT_EQ(source.layout(), (Layout{Format::fp8_block, 32}));
  EXPECT_EQ(rows_of(source)[95 * 192 + 96], 2);
}

TEST_F(Codecs, powers_of_two_may_lie_in_bytes_or_floats) {
  const std::string config = R"({"quant_method": "fp8", "weight_block_size": [32, 32],
                                 "scale_fmt": "ue8m0"})";
  const TensorData weight = f8("x.weight", {64, 32});
  const Floats floats = rows_of(
      open({weight, tensor("x.scale", DType::f32, {2, 1}, Floats{0.25F, 8})}, {64, 32}, config));
  EXPECT_EQ(floats.front(), 0.25F);
  EXPECT_EQ(floats.back(), 8);
  for (const DType dtype : {DType::u8, DType::f8_e8m0}) {
    EXPECT_EQ(rows_of(open({weight, tensor("x.weight_scale_inv", dtype, {2, 1}, Bytes{125, 130})},
                           {64, 32}, config)),
              floats);
  }
}

TEST_F(Codecs, scales_that_fit_nothing_are_refused) {
  const auto message = [&](std::vector<std::int64_t> shape, const std::string& config = "") {
    const auto count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return refusal(
        {f8("x.weight", {130, 40}), tensor("x.weight_scale", DType::f32, std::move(shape),
                                           Floats(static_cast<std::size_t>(count), 1))},
        {130, 40}, config);
  };
  EXPECT_EQ(message({2, 2}),
            "tensor \"x.weight_scale\", F32 [2, 2], should hold one scale for weights [130, 40], "
            "one a row, or [2, 1] for blocks of 128 x 128");
  EXPECT_EQ(
      message({130, 2}, R"({"quant_method": "compressed-tensors", "config_groups":
                       {"a": {"weights": {"block_structure": [1, 32]}}}})"),
      "tensor \"x.weight_scale\", F32 [130, 2], is of blocks of 1 x 32 (from row 0 on), which "
      "is not read: blocks must begin at multiples of 16 rows and 32 columns");
  EXPECT_EQ(refusal({f8("x.weight", {130, 40})}, {130, 40}),
            "tensor \"x.weight\", F8_E4M3 [130, 40], has no scales beside it (weight_scale_inv, "
            "weight_scale or scale)");
  EXPECT_EQ(
      refusal({f8("x.weight", {40, 130}), tensor("x.weight_scale", DType::f32, {1}, Floats{1})},
              {130, 40}),
      "tensor \"x.weight\", F8_E4M3 [40, 130], should be [130, 40]");
  EXPECT_EQ(
      refusal({f8("x.weight", {2, 2}), tensor("x.weight_scale", DType::i32, {2, 1}, Words{1, 1})},
              {2, 2}),
      "tensor \"x.weight_scale\", I32 [2, 1], should hold scales of type F32, BF16, F16, "
      "F8_E8M0 or U8");
}

TEST_F(Codecs, gate_and_up_of_one_tensor_must_begin_where_a_panel_may) {
  const auto up = [&](std::int64_t width) {
    checkpoint_.emplace(test::write_checkpoint(
        directory_, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
        {f8("gate_up_proj", {1, 2 * width, 4}),
         tensor("gate_up_proj_scale_inv", DType::f32, {1, 2, 1}, Floats{1, 2})}));
    return MatrixSource(*checkpoint_, {"gate_up_proj", {1, 2 * width, 4}, width, width, 4});
  };
  EXPECT_EQ(rows_of(up(80))[47 * 4], 1);
  EXPECT_EQ(rows_of(up(80))[48 * 4], 2);
  EXPECT_EQ(after_file(test::error_message([&] { (void)up(72); })),
            "tensor \"gate_up_proj_scale_inv\", F32 [1, 2, 1], is of blocks of 128 x 128 (from row "
            "72 on), which is not read: blocks must begin at multiples of 16 rows and 32 columns");
}

TEST_F(Codecs, scales_of_activations_are_left_alone) {
  const MatrixSource source =
      open({f8("x.weight", {2, 3}), tensor("x.weight_scale", DType::f32, {}, Floats{0.5F}),
            tensor("x.input_scale", DType::f32, {}, Floats{7})},
           {2, 3});
  EXPECT_EQ(rows_of(source), Floats(6, 0.5F));
}

TEST_F(Codecs, a_scale_that_is_no_number_is_named_when_its_row_is_read) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const MatrixSource source = open(
      {f8("x.weight", {3, 2}), tensor("x.weight_scale", DType::f32, {3, 1}, Floats{1, 1, kNan})},
      {3, 2});
  Floats rows(4);
  source.read_rows(0, 2, std::span(rows));
  QuantizedRows quantized;
  EXPECT_EQ(after_file(test::error_message([&] { source.read_quantized(1, 2, quantized); })),
            "tensor \"x.weight_scale\", F32 [3, 1], gives row 2 the scale nan from k 0 on");
  const MatrixSource exponents =
      open({f8("x.weight", {2, 64}),
            tensor("x.weight_scale", DType::u8, {2, 2}, Bytes{127, 127, 127, 255})},
           {2, 64});
  EXPECT_EQ(after_file(test::error_message([&] { exponents.read_quantized(0, 2, quantized); })),
            "tensor \"x.weight_scale\", U8 [2, 2], gives row 1 the scale nan from k 32 on");
}

// ------------------------------------------------------------------------------------------ nvfp4

std::vector<TensorData> nvfp4(const TensorData& matrix_scale) {
  return {tensor("x.weight_packed", DType::u8, {1, 8}, Bytes(8, 0x32)),   // 1, 1.5
          tensor("x.weight_scale", DType::f8_e4m3, {1, 1}, Bytes{0x40}),  // 2
          matrix_scale};
}

TEST_F(Codecs, compressed_tensors_divides_and_modelopt_multiplies) {
  const float divisor = 1075.2001F;
  const MatrixSource divided =
      open(nvfp4(tensor("x.weight_global_scale", DType::f32, {1}, Floats{divisor})), {1, 16});
  EXPECT_EQ(divided.scale(), 1 / divisor);
  EXPECT_EQ(rows_of(divided)[0], 2 / divisor);
  EXPECT_EQ(rows_of(divided)[1], 1.5F * (2 / divisor));
  std::vector<TensorData> tensors =
      nvfp4(tensor("x.weight_scale_2", DType::f32, {}, Floats{0.003F}));
  tensors[0].spec.name = "x.weight";
  const MatrixSource multiplied = open(tensors, {1, 16});
  EXPECT_EQ(multiplied.scale(), 0.003F);
  EXPECT_EQ(rows_of(multiplied)[1], 1.5F * (2 * 0.003F));
}

TEST_F(Codecs, a_matrix_scale_must_be_a_number) {
  EXPECT_EQ(refusal(nvfp4(tensor("x.weight_global_scale", DType::f32, {1}, Floats{0})), {1, 16}),
            "tensor \"x.weight_global_scale\", F32 [1], holds 0, which is no scale");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(
      refusal(nvfp4(tensor("x.weight_global_scale", DType::f32, {1}, Floats{infinity})), {1, 16}),
      "tensor \"x.weight_global_scale\", F32 [1], holds inf, which is no scale");
  EXPECT_EQ(
      refusal(nvfp4(tensor("x.weight_global_scale", DType::f32, {3}, Floats{1, 1, 1})), {1, 16}),
      "tensor \"x.weight_global_scale\", F32 [3], should have one element, or one for gate and one "
      "for up");
}

TEST_F(Codecs, the_matrix_scale_of_nvfp4_may_not_be_missing) {
  EXPECT_EQ(refusal(nvfp4(tensor("x.weight_scale_2", DType::f32, {}, Floats{1})), {1, 16}),
            directory_.path() + ": tensor \"x.weight_global_scale\" is missing");
  std::vector<TensorData> tensors =
      nvfp4(tensor("x.weight_global_scale", DType::f32, {1}, Floats{1}));
  tensors[0].spec.name = "x.weight";
  EXPECT_EQ(refusal(tensors, {1, 16}),
            directory_.path() + ": tensor \"x.weight_scale_2\" is missing");
}

TEST_F(Codecs, inputs_that_want_scaling_are_refused) {
  std::vector<TensorData> tensors =
      nvfp4(tensor("x.weight_scale_2", DType::f32, {}, Floats{0.003F}));
  tensors[0].spec.name = "x.weight";
  tensors.push_back(tensor("x.pre_quant_scale", DType::f32, {16}, Floats(16, 1)));
  EXPECT_EQ(refusal(tensors, {1, 16}),
            "tensor \"x.pre_quant_scale\", F32 [16], wants the layer's inputs multiplied by it, "
            "which is not done; take the unquantised checkpoint or one without AWQ");
}

TEST_F(Codecs, rows_of_blocks_take_turns) {
  // One expert of gpt-oss: gate rows 0 and 2, up rows 1 and 3. Row r holds code r everywhere.
  Bytes blocks;
  for (const std::uint8_t code : {1, 2, 3, 4}) blocks.insert(blocks.end(), 16, code | code << 4);
  checkpoint_.emplace(
      test::write_checkpoint(directory_, R"({"quant_method": "mxfp4"})",
                             {tensor("gate_up_proj_blocks", DType::u8, {1, 4, 1, 16}, blocks),
                              tensor("gate_up_proj_scales", DType::u8, {1, 4, 1}, Bytes(4, 128))}));
  const MatrixSource up(*checkpoint_, {"gate_up_proj", {1, 4, 32}, 1, 2, 32, 2});
  const Floats rows = rows_of(up);
  EXPECT_EQ(rows.front(), 2);  // code 2 is 1, the scale 2
  EXPECT_EQ(rows.back(), 4);   // code 4 is 2
  std::size_t touched = 0;
  up.for_each_bytes(0, 2, [&](std::span<const std::byte> bytes) { touched += bytes.size(); });
  EXPECT_EQ(touched, 3U * 16 + 3);
}

// --------------------------------------------------------------------------------------- integers

TEST_F(Codecs, packed_integers_have_4_bits_or_8) {
  const auto message = [&](std::int64_t words, std::int64_t groups) {
    return refusal({tensor("x.weight_packed", DType::i32, {2, words},
                           Words(static_cast<std::size_t>(2 * words))),
                    tensor("x.weight_scale", DType::f32, {2, groups},
                           Floats(static_cast<std::size_t>(2 * groups), 1))},
                   {2, 64});
  };
  EXPECT_EQ(message(8, 1), "no error");
  EXPECT_EQ(message(16, 1), "no error");
  EXPECT_EQ(message(16, 2),
            "tensor \"x.weight_scale\", F32 [2, 2], gives 8-bit integers a scale a group; only one "
            "a row is read");
  EXPECT_EQ(message(6, 1),
            "tensor \"x.weight_packed\", I32 [2, 6], should have 8 words a row (4 bits) or 16 (8 "
            "bits)");
  EXPECT_EQ(
      message(8, 4),
      "tensor \"x.weight_scale\", F32 [2, 4], is of groups of 16; groups must be multiples of "
      "32, or the whole row");
  EXPECT_EQ(
      message(8, 3),
      "tensor \"x.weight_scale\", F32 [2, 3], gives 3 scales to rows of 64, which they do not "
      "divide");
}

TEST_F(Codecs, integers_a_byte_with_scales_a_group_have_4_bits) {
  std::vector<std::int8_t> codes(128, -8);
  codes[70] = 8;
  const MatrixSource source =
      open({tensor("x.weight", DType::i8, {2, 64}, codes),
            tensor("x.weight_scale", DType::bf16, {2, 2}, std::vector<std::uint16_t>(4, 0x3f80))},
           {2, 64});
  EXPECT_EQ(source.layout(), (Layout{Format::int4_group, 32}));
  Floats row(64);
  source.read_rows(0, 1, std::span(row));
  EXPECT_EQ(row, Floats(64, -8));
  EXPECT_EQ(after_file(test::error_message([&] { source.read_rows(1, 1, std::span(row)); })),
            "tensor \"x.weight\", I8 [2, 64], holds 8 at row 1, k 6: integers of more than 4 bits "
            "need one scale a row");
}

TEST_F(Codecs, weight_shape_must_be_that_of_the_model) {
  EXPECT_EQ(refusal({tensor("x.weight_packed", DType::i32, {2, 1}, Words{0, 0}),
                     tensor("x.weight_scale", DType::f32, {2, 1}, Floats{1, 1}),
                     tensor("x.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{2, 7})},
                    {2, 8}),
            "tensor \"x.weight_shape\", I64 [2], says [2, 7], config.json asks for [2, 8]");
}

// ---------------------------------------------------------------------------------- GPTQ and AWQ

/// [8 rows, 64 k], two groups; every code 9, every scale 1.
std::vector<TensorData> gptq(const Words& zero_words, const std::vector<std::int32_t>& g_idx) {
  return {tensor("x.qweight", DType::i32, {8, 8}, Words(64, 0x99999999)),
          tensor("x.qzeros", DType::i32, {2, 1}, zero_words),
          tensor("x.scales", DType::f16, {2, 8}, std::vector<std::uint16_t>(16, 0x3c00)),
          tensor("x.g_idx", DType::i32, {64}, g_idx)};
}

std::vector<std::int32_t> groups_of_32() {
  std::vector<std::int32_t> g_idx(64, 0);
  std::fill(g_idx.begin() + 32, g_idx.end(), 1);
  return g_idx;
}

TEST_F(Codecs, zero_points_are_read_as_the_configuration_says) {
  const std::vector<TensorData> tensors = gptq({0x77777777, 0x00000000}, groups_of_32());
  const auto first_row = [&](const std::string& fields) {
    const Floats rows =
        rows_of(open(tensors, {8, 64}, R"({"quant_method": "gptq", "bits": 4)" + fields + "}"));
    return std::pair(rows[0], rows[63]);
  };
  EXPECT_EQ(first_row(""), std::pair(1.0F, 8.0F));
  EXPECT_EQ(first_row(R"(, "checkpoint_format": "gptq_v2")"), std::pair(2.0F, 9.0F));
  EXPECT_EQ(first_row(R"(, "sym": true)"), std::pair(1.0F, 1.0F));
}

TEST_F(Codecs, a_zero_point_of_0_borrows_from_its_neighbour) {
  // Zero points 0, 1, 0, 0, 5, 0, 15, 3 of rows 0 to 7, less 0x11111111 as one word.
  const std::uint32_t word = 0x3f050010U - 0x11111111U;
  const Floats rows = rows_of(open(gptq({word, word}, groups_of_32()), {8, 64}));
  Floats zeros;
  for (std::size_t row = 0; row < 8; ++row) zeros.push_back(9 - rows[row * 64]);
  EXPECT_EQ(zeros, (Floats{0, 1, 0, 0, 5, 0, 15, 3}));
}

TEST_F(Codecs, activation_order_is_undone_or_refused) {
  std::vector<std::int32_t> g_idx(64);
  for (std::size_t k = 0; k < 64; ++k) g_idx[k] = k % 2 == 0 ? 1 : 0;
  const MatrixSource source = open(gptq({0x77777777, 0}, g_idx), {8, 64});
  ASSERT_EQ(source.order().size(), 64U);
  EXPECT_EQ(source.order()[0], 1);
  EXPECT_EQ(source.order()[31], 63);
  EXPECT_EQ(source.order()[32], 0);
  const Floats rows = rows_of(source);  // k in the model's order
  EXPECT_EQ(rows[0], 8);
  EXPECT_EQ(rows[1], 1);
  g_idx[1] = 1;  // 31 in the first group, 33 in the last
  EXPECT_EQ(refusal(gptq({0, 0}, g_idx), {8, 64}),
            "tensor \"x.g_idx\", I32 [64], does not part 64 inputs into 2 groups of one size (but "
            "for the last), which is needed");
  g_idx[0] = 2;
  EXPECT_TRUE(refusal(gptq({0, 0}, g_idx), {8, 64}).starts_with("tensor \"x.g_idx\""));
  EXPECT_TRUE(open(gptq({0, 0}, groups_of_32()), {8, 64}).order().empty());
}

TEST_F(Codecs, other_packings_of_qweight_are_refused) {
  const auto message = [&](std::vector<std::int64_t> shape) {
    const auto words = static_cast<std::size_t>(shape[0] * shape[1]);
    return refusal({tensor("x.qweight", DType::i32, std::move(shape), Words(words)),
                    tensor("x.qzeros", DType::i32, {1, 1}, Words(1)),
                    tensor("x.scales", DType::f16, {1, 8}, std::vector<std::uint16_t>(8))},
                   {8, 32});
  };
  EXPECT_EQ(message({4, 8}), "no error");   // GPTQ
  EXPECT_EQ(message({32, 1}), "no error");  // AWQ
  EXPECT_EQ(message({8, 8}),
            "tensor \"x.qweight\", I32 [8, 8], is of 8 bits, which is not read: GPTQ weights of 4 "
            "bits are");
  EXPECT_EQ(
      message({8, 4}),
      "tensor \"x.qweight\", I32 [8, 4], beside scales [1, 8], is packed neither as GPTQ does "
      "([K/8, N], scales [K/group, N]) nor as AWQ's gemm version does ([K, N/8])");
}

TEST_F(Codecs, what_lies_across_the_rows_is_touched_with_the_last_one) {
  const MatrixSource source = open(gptq({0, 0}, groups_of_32()), {8, 64});
  const auto touched = [&](std::int64_t first, std::int64_t count) {
    std::size_t sum = 0;
    source.for_each_bytes(first, count, [&](std::span<const std::byte> b) { sum += b.size(); });
    return sum;
  };
  EXPECT_EQ(touched(0, 7), 0U);
  EXPECT_EQ(touched(7, 1), 256U + 8 + 32);
}

TEST_F(Codecs, missing_companions_are_named) {
  EXPECT_EQ(refusal({tensor("x.qweight", DType::i32, {4, 8}, Words(32))}, {8, 32}),
            directory_.path() + ": tensor \"x.scales\" is missing");
  EXPECT_EQ(refusal({tensor("x.weight_packed", DType::u8, {8, 16}, Bytes(128))}, {8, 32}),
            directory_.path() + ": tensor \"x.weight_scale\" is missing");
  EXPECT_EQ(refusal({tensor("x.weight", DType::u8, {8, 16}, Bytes(128))}, {8, 32}),
            "tensor \"x.weight\", U8 [8, 16], has no scales beside it (weight_scale_inv, "
            "weight_scale or scale)");
  EXPECT_EQ(refusal({f8("y", {1, 1})}, {8, 32}),
            directory_.path() + ": tensor \"x.weight\" is missing");
}

}  // namespace
}  // namespace moesaic
