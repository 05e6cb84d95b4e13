#include "kernels/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/packed_matrix.h"

namespace moesaic {
namespace {

constexpr std::int64_t kPackedDepths[] = {0,  1,  2,  15, 16, 17,  31,  32,  33,
                                          47, 48, 63, 64, 65, 127, 129, 257, 1024};

/// A matrix of at most 16 rows whose elements all differ, its rows at odd element offsets, and a
/// panel between guards.
template <typename T>
struct Case {
  Case(std::int64_t num_rows, std::int64_t depth, std::int64_t bytes)
      : values(static_cast<std::size_t>(num_rows * (depth + 3) + 1)),
        panel(static_cast<std::size_t>(bytes / static_cast<std::int64_t>(sizeof(T))) + 64,
              element(0xabcd)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = element(static_cast<std::uint16_t>(i + 1));
    }
    for (std::int64_t r = 0; r < num_rows; ++r) {
      rows.push_back(values.data() + 1 + r * (depth + 3));
    }
  }

  static T element(std::uint16_t bits) { return std::bit_cast<T>(bits_of(bits)); }
  static auto bits_of(std::uint16_t bits) {
    if constexpr (sizeof(T) == 2) {
      return bits;
    } else {
      return static_cast<std::uint32_t>(bits) * 0x10001U;
    }
  }

  std::vector<T> values;
  std::vector<const T*> rows;
  std::vector<T> panel;  // and 64 elements more
};

template <typename T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Every element of the panel, missing ones included, and nothing behind it.
template <typename T, typename Index>
void expect_panel(const Case<T>& matrix, std::int64_t depth, std::int64_t bytes, Index index) {
  const auto num_rows = static_cast<std::int64_t>(matrix.rows.size());
  for (std::int64_t k = 0; k < round_up(depth, kStepDepth); ++k) {
    for (std::int64_t c = 0; c < kPanelColumns; ++c) {
      const T expected =
          c < num_rows && k < depth ? matrix.rows[static_cast<std::size_t>(c)][k] : T{};
      ASSERT_TRUE(same(matrix.panel[static_cast<std::size_t>(index(c, k))], expected))
          << "column " << c << " of " << num_rows << ", k " << k << " of " << depth;
    }
  }
  const auto end = static_cast<std::size_t>(bytes) / sizeof(T);
  for (std::size_t i = end; i < matrix.panel.size(); ++i) {
    ASSERT_TRUE(same(matrix.panel[i], Case<T>::element(0xabcd))) << "written behind the panel";
  }
}

TEST(Bf16Format, pack_panel_puts_pairs_of_k_beside_each_other) {
  for (const std::int64_t depth : kPackedDepths) {
    for (const std::int64_t rows : {0, 1, 2, 7, 15, 16}) {
      const std::int64_t bytes = bf16_format::panel_bytes(depth);
      Case<BFloat16> matrix(rows, depth, bytes);
      bf16_format::pack_panel(matrix.rows, depth, matrix.panel.data());
      expect_panel(matrix, depth, bytes, bf16_format::element_index);
    }
  }
}

TEST(F32Format, pack_panel_puts_columns_beside_each_other) {
  for (const std::int64_t depth : kPackedDepths) {
    for (const std::int64_t rows : {0, 1, 2, 7, 15, 16}) {
      const std::int64_t bytes = f32_format::panel_bytes(depth);
      Case<float> matrix(rows, depth, bytes);
      f32_format::pack_panel(matrix.rows, depth, matrix.panel.data());
      expect_panel(matrix, depth, bytes, [](std::int64_t c, std::int64_t k) { return k * 16 + c; });
    }
  }
}

template <typename T, typename Pack, typename Unpack>
void expect_round_trip(std::int64_t bytes, std::int64_t depth, Pack pack, Unpack unpack) {
  Case<T> matrix(16, depth, bytes);
  pack(matrix.rows, depth, matrix.panel.data());
  std::vector<T> column(static_cast<std::size_t>(depth));
  for (std::int64_t c = 0; c < kPanelColumns; ++c) {
    unpack(matrix.panel.data(), c, depth, column.data());
    EXPECT_EQ(std::memcmp(column.data(), matrix.rows[static_cast<std::size_t>(c)],
                          column.size() * sizeof(T)),
              0)
        << "column " << c << ", depth " << depth;
  }
}

TEST(Format, unpack_column_inverts_pack_panel) {
  for (const std::int64_t depth : {1, 31, 32, 33, 257}) {
    expect_round_trip<BFloat16>(bf16_format::panel_bytes(depth), depth, bf16_format::pack_panel,
                                bf16_format::unpack_column);
    expect_round_trip<float>(f32_format::panel_bytes(depth), depth, f32_format::pack_panel,
                             f32_format::unpack_column);
  }
}

TEST(Format, sizes) {
  EXPECT_EQ(panel_bytes(Layout{.format = Format::bf16}, 33), 64 * 16 * 2);
  EXPECT_EQ(panel_bytes(Layout{.format = Format::f32}, 33), 64 * 16 * 4);
  EXPECT_EQ(panel_count(0), 0);
  EXPECT_EQ(panel_count(16), 1);
  EXPECT_EQ(panel_count(17), 2);
  EXPECT_EQ((PackedMatrix{.layout = {.format = Format::bf16}, .rows = 17, .depth = 32}.bytes()),
            2 * 1024);
  EXPECT_EQ(format_name(Format::bf16), "bf16");
  EXPECT_EQ(format_name(Format::f32), "f32");
}

}  // namespace
}  // namespace moesaic
