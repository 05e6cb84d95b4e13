#include "src/moe/expert_mask.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moesaic::test {
namespace {

std::vector<std::int64_t> chosen(const ExpertMask& mask, std::int64_t layer) {
  std::vector<std::int64_t> ids;
  for (std::int64_t expert = 0; expert < mask.num_experts(layer); ++expert) {
    if (mask.contains(layer, expert)) ids.push_back(expert);
  }
  return ids;
}

using Ids = std::vector<std::int64_t>;

TEST(ExpertMask, spreads_a_number_evenly) {
  const ExpertMask mask = ExpertMask::spread({8, 0, 3}, 4);
  EXPECT_EQ(chosen(mask, 0), (Ids{1, 3, 5, 7}));
  EXPECT_EQ(chosen(mask, 1), Ids{});
  EXPECT_EQ(chosen(mask, 2), (Ids{0, 1, 2}));
  EXPECT_EQ(chosen(ExpertMask::all({3}), 0), (Ids{0, 1, 2}));
  EXPECT_EQ(chosen(ExpertMask::spread({3}, 0), 0), Ids{});
  // Whatever the number, ranks that have as many experts have as many of these, within one.
  for (std::int64_t count = 0; count <= 64; ++count) {
    const ExpertMask some = ExpertMask::spread({64}, count);
    EXPECT_EQ(std::ssize(chosen(some, 0)), count);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      std::int64_t own = 0;
      for (std::int64_t e = 16 * rank; e < 16 * (rank + 1); ++e) own += some.contains(0, e) ? 1 : 0;
      EXPECT_GE(own, count / 4);
      EXPECT_LE(own, (count + 3) / 4);
    }
  }
}

TEST(ExpertMask, is_read_from_a_file) {
  const ExpertMask mask =
      ExpertMask::read({4, 0, 4}, Json::parse(R"({"2": [3, 0], "0": []})", "mask.json"));
  EXPECT_EQ(chosen(mask, 0), Ids{});
  EXPECT_EQ(chosen(mask, 2), (Ids{0, 3}));
}

template <typename Call>
std::string file_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

TEST(ExpertMask, names_what_is_wrong_in_a_file) {
  const auto read = [](const char* text) {
    return file_error([&] { (void)ExpertMask::read({4, 0, 4}, Json::parse(text, "mask.json")); });
  };
  EXPECT_EQ(read(R"({"3": [0]})"),
            "mask.json: 3: there is no layer \"3\": the model has layers 0 to 2");
  EXPECT_EQ(read(R"({"x": [0]})"),
            "mask.json: x: there is no layer \"x\": the model has layers 0 to 2");
  EXPECT_EQ(read(R"({"1": [0]})"), "mask.json: 1: layer 1 has no experts");
  EXPECT_EQ(read(R"({"0": [4]})"), "mask.json: 0[0]: layer 0 has no expert 4: ids are 0 to 3");
  EXPECT_EQ(read(R"({"0": [-1]})"), "mask.json: 0[0]: layer 0 has no expert -1: ids are 0 to 3");
  EXPECT_EQ(read(R"({"0": [1, 2, 1]})"), "mask.json: 0[2]: expert 1 of layer 0 stands twice");
  EXPECT_NE(read(R"({"0": ["1"]})").find("mask.json: 0[0]"), std::string::npos);
  EXPECT_NE(read(R"(7)").find("mask.json"), std::string::npos);
}

}  // namespace
}  // namespace moesaic::test
