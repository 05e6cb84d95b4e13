// Damaged files: whatever the damage, the reader either refuses the file or gives tensors that lie
// inside it and fit their shapes.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "src/checkpoint/safetensors.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

std::string sound_file() {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("t");
  test::write_tiny_safetensors(
      path, {{"model.layers.0.mlp.experts.0.gate_proj.weight", DType::bf16, {3, 5}},
             {"model.norm.weight", DType::f32, {5}},
             {"ids", DType::i64, {2, 1, 2}},
             {"flags", DType::boolean, {}}});
  return test::read_text(path);
}

/// Whether the file was accepted; if so, its tensors are checked.
bool opens_consistently(const std::string& text) {
  std::vector<TensorView> tensors;
  try {
    tensors = parse_safetensors(std::as_bytes(std::span(text)), "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_TRUE(std::string(error.what()).starts_with("f: ")) << error.what();
    return false;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  for (const TensorView& tensor : tensors) {
    EXPECT_GE(tensor.bytes.data(), begin);
    EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), begin + text.size());
    EXPECT_EQ(static_cast<std::int64_t>(tensor.bytes.size()),
              std::accumulate(tensor.shape.begin(), tensor.shape.end(), dtype_bytes(tensor.dtype),
                              std::multiplies<>()));
  }
  return true;
}

TEST(HostileSafetensors, refuses_a_file_cut_at_any_length) {
  const std::string whole = sound_file();
  ASSERT_TRUE(opens_consistently(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of exactly this length, so that a sanitizer sees any byte read behind its end.
    const std::string part(whole.data(), length);
    EXPECT_FALSE(opens_consistently(part)) << length;
  }
}

TEST(HostileSafetensors, refuses_a_file_with_more_bytes) {
  const std::string whole = sound_file();
  for (const std::size_t more : {1U, 2U, 8U, 4096U}) {
    EXPECT_FALSE(opens_consistently(whole + std::string(more, '\0')));
  }
}

TEST(HostileSafetensors, survives_flipped_bits) {
  const std::string whole = sound_file();
  const std::size_t header_end = 8 + whole.rfind('}') - 7;
  std::mt19937_64 random(20240607);
  int accepted = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string damaged = whole;
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      damaged[random() % header_end] ^= static_cast<char>(1U << (random() % 8));
    }
    accepted += opens_consistently(damaged) ? 1 : 0;
  }
  // Flips within a name leave a sound file, so some are accepted; most are not.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kRounds / 2);
}

TEST(HostileSafetensors, survives_edited_numbers) {
  const std::string whole = sound_file();
  const std::size_t header_end = whole.rfind('}');
  std::vector<std::size_t> digits;
  for (std::size_t i = 8; i < header_end; ++i) {
    if (whole[i] >= '0' && whole[i] <= '9') digits.push_back(i);
  }
  std::mt19937_64 random(7);
  const std::vector<std::string> values = {"0",
                                           "9",
                                           "-1",
                                           "1e3",
                                           "1e999",
                                           "18446744073709551615",
                                           "2.5",
                                           "null",
                                           "[0]",
                                           "\"\"",
                                           "9223372036854775807"};
  for (int round = 0; round < 5'000; ++round) {
    std::string text = whole.substr(8, header_end + 1 - 8);
    text.replace(digits[random() % digits.size()] - 8, 1, values[random() % values.size()]);
    opens_consistently(test::safetensors_text(text, whole.substr(header_end + 1)));
  }
}

}  // namespace
}  // namespace moesaic
