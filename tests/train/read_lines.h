#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "src/train/sample_reader.h"

namespace moesaic {

inline constexpr std::int32_t kEnd = 2;

/// A tokenizer of the demo model, and a template that writes "<role>text\n".
inline SampleTools tools() {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  SampleTools tools;
  tools.tokenizer = Tokenizer::from_directory(MOESAIC_TEST_DATA "/demo-model");
  tools.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  tools.end_token = kEnd;
  tools.vocab_size = 1 << 20;
  return tools;
}

struct Result : ReadSamples {
  SampleFormat format;  // that the first line has
};

inline Result read(const std::string& text, const SampleTools& with = tools(),
                   ReadOptions options = {.context = 1000}) {
  const SampleFile file(text, "data.jsonl");
  options.format = file.detect_format();
  return {file.read(with, options), options.format};
}

/// The text of the tokens that are trained; "|" between those that do not follow each other.
inline std::string trained_text(const TrainSample& sample) {
  const SampleTools with = tools();
  std::string text;
  std::vector<std::int32_t> run;
  for (std::size_t i = 0; i <= sample.labels.size(); ++i) {
    if (i < sample.labels.size() && sample.labels[i] != kNotTrained) {
      run.push_back(sample.tokens[i]);
    } else if (!run.empty()) {
      text += with.tokenizer->decode(run, false) + "|";
      run.clear();
    }
  }
  return text;
}

inline std::string error_of(const std::string& text, const SampleTools& with = tools(),
                            const ReadOptions& options = {.context = 1000}) {
  try {
    (void)read(text, with, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "nothing was wrong";
}

}  // namespace moesaic
