#include "src/train/sample_maker.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "src/chat/assistant_mask.h"
#include "src/train/sample_set.h"

namespace moesaic {
namespace {

std::vector<std::int32_t> read_ids(const Json& list, std::int64_t vocab_size, bool are_labels) {
  std::vector<std::int32_t> ids;
  require(list.is_array(), ErrorKind::file, "{}: expected a list of token ids", list.where());
  list.for_each([&](const std::string&, const Json& value) {
    const std::int64_t id = value.as_int();
    const bool is_known = (id >= 0 && id < vocab_size) || (are_labels && id == kNotTrained);
    require(is_known, ErrorKind::file, "{}: {} is outside the model's vocabulary of {}{}",
            value.where(), id, vocab_size, are_labels ? ", and not -100 (not trained)" : "");
    ids.push_back(static_cast<std::int32_t>(id));
  });
  return ids;
}

/// Several texts in one sample would attend to one another.
void require_one_text(const Json& line) {
  if (const auto lengths = line.find("seq_lengths")) {
    require(lengths->is_array() && lengths->size() <= 1, ErrorKind::file,
            "{}: a sample is one text; give each a line of its own", lengths->where());
  }
  const auto positions = line.find("position_ids");
  if (!positions) return;
  require(positions->is_array(), ErrorKind::file, "{}: expected a list of positions",
          positions->where());
  std::int64_t next = 0;
  positions->for_each([&](const std::string&, const Json& value) {
    require(
        value.as_int() == next++, ErrorKind::file,
        "{}: positions are 0, 1, 2 and so on: a sample is one text; give each a line of its own",
        value.where());
  });
}

MadeSample sample_of_tokens(const Json& line, const SampleTools& tools) {
  require_one_text(line);
  MadeSample sample;
  sample.tokens = read_ids(line.at("input_ids"), tools.vocab_size, false);
  const Json labels = line.at("labels");
  sample.labels = read_ids(labels, tools.vocab_size, true);
  require(sample.labels.size() == sample.tokens.size(), ErrorKind::file,
          "{}: {} labels for {} input_ids", labels.where(), sample.labels.size(),
          sample.tokens.size());
  if (const auto mask = line.find("attention_mask")) {
    require(mask->is_array(), ErrorKind::file, "{}: expected a list of ones", mask->where());
    require(std::cmp_equal(mask->size(), sample.tokens.size()), ErrorKind::file,
            "{}: {} values for {} input_ids", mask->where(), mask->size(), sample.tokens.size());
    mask->for_each([](const std::string&, const Json& value) {
      require(value.as_int() == 1, ErrorKind::file,
              "{}: a sample has no padding; leave padded tokens out", value.where());
    });
  }
  return sample;
}

MadeSample sample_of_text(const EncodedText& encoded, const std::vector<Span>& trained) {
  MadeSample sample{.tokens = encoded.ids, .labels = encoded.ids};
  const std::vector<bool> mask = mask_of(encoded, trained);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) sample.labels[i] = kNotTrained;
  }
  return sample;
}

/// Unless the last token is that one already, of the tokenizer or of what is trained: `ends` tells
/// that it is no other's. A first token, of which nothing is predicted, ends nothing.
void add_end_token(MadeSample& sample, bool ends, const Json& line, const SampleTools& tools) {
  require(tools.end_token.has_value(), ErrorKind::file,
          "{}: no end-of-sequence token is known, which the sample is to end with", line.where());
  if (ends && sample.tokens.size() > 1 && sample.tokens.back() == *tools.end_token) {
    sample.labels.back() = *tools.end_token;
    return;
  }
  sample.tokens.push_back(*tools.end_token);
  sample.labels.push_back(*tools.end_token);
}

MadeSample sample_of_completion(const Json& line, const SampleTools& tools) {
  require_texts(line);
  const std::string prompt = line.at("prompt").as_string();
  const std::string text = prompt + line.at("completion").as_string();
  const EncodedText encoded = tools.tokenizer->encode_with_spans(text);
  MadeSample sample = sample_of_text(encoded, {{prompt.size(), text.size()}});
  const bool ends_with_prompt = !encoded.spans.empty() && encoded.spans.back().size() > 0 &&
                                sample.labels.back() == kNotTrained;
  add_end_token(sample, !ends_with_prompt, line, tools);
  return sample;
}

MadeSample sample_of_plain_text(const Json& line, const SampleTools& tools) {
  MadeSample sample;
  sample.tokens = tools.tokenizer->encode(line.at("text").as_string());
  sample.labels = sample.tokens;
  add_end_token(sample, true, line, tools);
  return sample;
}

/// What the template writes, and what of it is trained.
struct WrittenChat {
  jinja::Rendered rendered;
  std::optional<std::vector<Span>> trained;
};

/// What a template finds wrong with a conversation names its line.
WrittenChat write_chat(const Json& line, const TrainedChat& its, const SampleTools& tools) {
  const ChatTemplate& chat_template = *tools.chat_template;
  try {
    WrittenChat written{chat_template.render(its.chat), {}};
    written.trained = assistant_spans(chat_template, its.chat, written.rendered, its.first);
    return written;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", line.where(), error.what());
  }
}

/// Why a template does not tell what the assistant said, or where the last turn begins.
std::string untold_reason(const TrainedChat& its, TrainOn train_on) {
  if (its.first == 0 && assistant_speaks_first(its.chat)) {
    return "an assistant speaks first, and the chat template has no generation blocks";
  }
  if (train_on == TrainOn::last) {
    return "the chat template writes earlier turns in another way when it follows, or refuses a "
           "conversation that ends with them";
  }
  if (its.first > 0) {
    return "the chat template writes what stands before a turn of the completion in another way "
           "when it follows, or refuses a conversation that ends with it";
  }
  return "the chat template has no generation blocks, and writes earlier turns in another way when "
         "later ones follow, or refuses a conversation that ends with them; --train-on last may be "
         "told";
}

MadeSample sample_of_conversation(const Json& line, SampleFormat format, const SampleTools& tools) {
  TrainedChat its = read_conversation(line, format);
  if (tools.train_on == TrainOn::last) its.first = std::max(its.first, last_turn(its.chat));
  const auto [rendered, trained] = write_chat(line, its, tools);
  require(trained.has_value(), ErrorKind::file,
          "{}: {} cannot be told: {}; give the line as input_ids and labels, or a template with "
          "generation blocks (--chat-template FILE)",
          line.where(),
          tools.train_on == TrainOn::last ? "where the last turn begins (--train-on last)"
                                          : "what the assistant said",
          untold_reason(its, tools.train_on));
  return sample_of_text(tools.tokenizer->encode_with_spans(rendered.text, false), *trained);
}

MadeSample sample_of(const Json& line, SampleFormat format, const SampleTools& tools) {
  switch (format) {
    case SampleFormat::tokens:
      return sample_of_tokens(line, tools);
    case SampleFormat::completion:
      return sample_of_completion(line, tools);
    case SampleFormat::text:
      return sample_of_plain_text(line, tools);
    default:
      return sample_of_conversation(line, format, tools);
  }
}

}  // namespace

MadeSample make_sample(const Json& line, SampleFormat format, const SampleTools& tools) {
  MadeSample sample = sample_of(line, format, tools);
  require(!sample.tokens.empty(), ErrorKind::file, "{}: the sample has no tokens", line.where());
  for (const std::int32_t id : sample.tokens) {
    require(id < tools.vocab_size, ErrorKind::file,
            "{}: tokenizer.json has token {}, but config.json has a vocab_size of {}", line.where(),
            id, tools.vocab_size);
  }
  return sample;
}

}  // namespace moesaic
