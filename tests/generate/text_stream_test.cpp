#include "src/generate/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moesaic {
namespace {

TEST(TextStream, a_token_has_the_text_that_it_has_behind_the_prompt) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"▁a":0,"▁b":1},"merges":[]},)"
      R"("decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}})",
      "tokenizer.json");
  TextStream first(tokenizer, {}, {});
  EXPECT_EQ(first.push(1) + first.finish(), "b");
  TextStream behind(tokenizer, std::vector{0}, {" c"});
  EXPECT_EQ(behind.push(1) + behind.finish(), " b");
}

}  // namespace
}  // namespace moesaic
