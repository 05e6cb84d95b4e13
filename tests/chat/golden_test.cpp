// Conversations in the dialects of many families, as tools/make_chat_goldens.py recorded them from
// transformers: texts, ids, masks, and what is refused must be the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "src/chat/assistant_mask.h"
#include "src/chat/chat_template.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = MOESAIC_TEST_DATA "/chat";

std::vector<std::string> dialects() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(
        Json::parse(line, path.filename().string() + " line " + std::to_string(lines.size() + 1)));
  }
  return lines;
}

std::int64_t checksum(const std::vector<std::int32_t>& ids) {
  std::int64_t total = 0;
  for (const std::int32_t id : ids) total = (total * 31 + id) % 2147483647;
  return total;
}

/// "first+length " of what a mask chooses.
std::string runs_of(const std::vector<bool>& mask) {
  std::string runs;
  for (std::size_t at = 0; at < mask.size();) {
    const std::size_t begin = at;
    while (at < mask.size() && mask[at]) ++at;
    if (at > begin) runs += std::to_string(begin) + "+" + std::to_string(at - begin) + " ";
    if (at == begin) ++at;
  }
  return runs;
}

std::string runs_of(const Json& pairs) {
  std::string runs;
  pairs.for_each([&](const std::string&, const Json& pair) {
    runs += std::to_string(pair.at(std::int64_t{0}).as_int()) + "+" +
            std::to_string(pair.at(1).as_int()) + " ";
  });
  return runs;
}

class ChatGolden : public testing::TestWithParam<std::string> {
 protected:
  void check(const Json& conversation, const Json& golden) {
    const Chat chat = read_chat(conversation);
    const jinja::Rendered rendered = template_.render(chat);
    ASSERT_EQ(rendered.text, golden.at("text").as_string());
    const EncodedText encoded = tokenizer_.encode_with_spans(rendered.text, false);
    EXPECT_EQ(std::ssize(encoded.ids), golden.at("ids").at(std::int64_t{0}).as_int());
    EXPECT_EQ(checksum(encoded.ids), golden.at("ids").at(1).as_int());
    const auto spans = assistant_spans(template_, chat, rendered);
    const auto mask = golden.find("mask");
    ASSERT_EQ(spans.has_value(), mask.has_value());
    if (!mask) return;
    EXPECT_EQ(runs_of(mask_of(encoded, *spans)), runs_of(*mask));
  }

  void check_refused(const Json& conversation, const std::string& words) {
    try {
      const std::string text = template_.render(read_chat(conversation)).text;
      ADD_FAILURE() << "should be refused, but gives " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file);
      EXPECT_TRUE(std::string_view(error.what()).ends_with(words)) << error.what();
    }
  }

  fs::path folder_ = kFolder / GetParam();
  ChatTemplate template_ = ChatTemplate::from_directory(folder_);
  Tokenizer tokenizer_ = Tokenizer::from_directory(
      MOESAIC_TEST_DATA "/tokenizers/" +
      Json::read_file(kFolder / "tokenizers.json").at(GetParam()).as_string());
};

TEST_P(ChatGolden, texts_ids_and_masks_are_those_of_transformers) {
  const std::vector<Json> conversations = lines_of(kFolder / "conversations.jsonl");
  const std::vector<Json> goldens = lines_of(folder_ / "golden.jsonl");
  ASSERT_GE(conversations.size(), 20U);
  ASSERT_EQ(conversations.size(), goldens.size());
  for (std::size_t i = 0; i < goldens.size(); ++i) {
    SCOPED_TRACE("conversation " + std::to_string(i + 1));
    try {
      const auto refused = goldens[i].find("error");
      if (refused) {
        check_refused(conversations[i], refused->as_string());
      } else {
        check(conversations[i], goldens[i]);
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, ChatGolden, testing::ValuesIn(dialects()),
                         [](const auto& name) { return name.param; });

TEST(ChatGoldens, are_of_many_dialects) {
  EXPECT_GE(dialects().size(), 12U);
}

}  // namespace
}  // namespace moesaic
