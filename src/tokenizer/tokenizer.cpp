#include "src/tokenizer/tokenizer.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "src/tokenizer/added_tokens.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/post_processor.h"
#include "src/tokenizer/pre_tokenizer.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

/// The stages of encoding in their order, and what decoding needs.
struct Tokenizer::Parts {
  explicit Parts(const Json& file);

  /// nullptr for an id that no token has.
  [[nodiscard]] const std::string* token(std::int32_t id) const {
    const std::string* added = added_tokens.token(id);
    return added != nullptr ? added : model.vocabulary().token(id);
  }
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const {
    const auto added = added_tokens.id(token);
    return added ? added : model.vocabulary().id(token);
  }

  AddedTokenFinder raw_finder;
  Normalizer normalizer;
  AddedTokenFinder normalized_finder;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  Decoder decoder;
  Vocabulary added_tokens;
  std::unordered_set<std::int32_t> special_ids;

 private:
  void add(const AddedToken& token, const Json& array);
};

namespace {

template <typename Part>
Part part_or_none(const Json& file, std::string_view key) {
  const auto part = file.find(key);
  return part ? Part(*part) : Part();
}

}  // namespace

Tokenizer::Parts::Parts(const Json& file)
    : normalizer(part_or_none<Normalizer>(file, "normalizer")),
      pre_tokenizer(part_or_none<PreTokenizer>(file, "pre_tokenizer")),
      model(file.at("model")),
      decoder(part_or_none<Decoder>(file, "decoder")) {
  if (const auto array = file.find("added_tokens")) {
    for (const AddedToken& token : read_added_tokens(*array)) add(token, *array);
  }
  if (const auto part = file.find("post_processor")) {
    post_processor =
        PostProcessor(*part, [&](std::int32_t id) { return this->token(id) != nullptr; });
  }
}

void Tokenizer::Parts::add(const AddedToken& token, const Json& array) {
  // The same token may stand in the model's vocabulary, under the same id.
  const auto known_id = model.vocabulary().id(token.content);
  require(known_id.value_or(token.id) == token.id, ErrorKind::file,
          "{}: token \"{}\" has id {} here and id {} in the vocabulary", array.where(),
          token.content, token.id, known_id.value_or(token.id));
  const std::string* known = model.vocabulary().token(token.id);
  require(known == nullptr || *known == token.content, ErrorKind::file,
          "{}: id {} is given to \"{}\", in the vocabulary to \"{}\"", array.where(), token.id,
          token.content, known == nullptr ? "" : *known);
  added_tokens.add(token.content, token.id, array);
  if (token.special) special_ids.insert(token.id);
  if (!token.normalized) return raw_finder.add(token, token.content);
  NormalizedText content{token.content};
  normalizer.apply(content);
  normalized_finder.add(token, content.text);
}

namespace {

/// Encodes one text and remembers the pieces that it has met.
class Encoding {
 public:
  explicit Encoding(const Tokenizer::Parts& parts) : parts_(parts) {}

  std::vector<std::int32_t> run(std::string_view text) && {
    for (const Segment& segment : parts_.raw_finder.split(text)) {
      if (segment.id) {
        ids_.push_back(*segment.id);
      } else {
        add_text(segment.text, segment.text.data() == text.data());
      }
    }
    return std::move(ids_);
  }

 private:
  void add_text(std::string_view raw, bool at_start) {
    NormalizedText& text = texts_.emplace_back(NormalizedText{std::string(raw), at_start});
    parts_.normalizer.apply(text);
    for (const Segment& segment : parts_.normalized_finder.split(text.text)) {
      if (segment.id) {
        ids_.push_back(*segment.id);
        continue;
      }
      const bool is_first = segment.text.data() == text.text.data();
      PieceList& pieces = pieces_.emplace_back(segment.text, text.at_start && is_first);
      parts_.pre_tokenizer.apply(pieces);
      for (const Piece& piece : pieces.pieces()) add_piece(piece.text);
    }
  }

  void add_piece(std::string_view piece) {
    const auto [entry, is_new] = known_.try_emplace(piece, Span{ids_.size(), ids_.size()});
    if (is_new) {
      parts_.model.append_ids(piece, ids_);
      entry->second.end = ids_.size();
    } else {
      for (std::size_t i = entry->second.begin; i < entry->second.end; ++i) {
        ids_.push_back(ids_[i]);
      }
    }
  }

  const Tokenizer::Parts& parts_;
  std::deque<NormalizedText> texts_;                  // viewed by the pieces
  std::deque<PieceList> pieces_;                      // viewed by the keys of known_
  std::unordered_map<std::string_view, Span> known_;  // where the ids of a piece stand in ids_
  std::vector<std::int32_t> ids_;
};

}  // namespace

Tokenizer Tokenizer::from_directory(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "tokenizer.json").string();
  return Tokenizer(std::make_shared<const Parts>(Json::read_file(path)));
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string document) {
  return Tokenizer(std::make_shared<const Parts>(Json::parse(text, std::move(document))));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  return parts_->post_processor.apply(Encoding(*parts_).run(text), add_special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text += decoder.finish();
}

std::string Tokenizer::token(std::int32_t id) const {
  const std::string* token = parts_->token(id);
  return token == nullptr ? "" : *token;
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  return parts_->token_id(token);
}

std::int64_t Tokenizer::vocab_size() const {
  return std::max(parts_->model.vocabulary().size(), parts_->added_tokens.size());
}

bool Tokenizer::is_special(std::int32_t id) const {
  return parts_->special_ids.contains(id);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : parts_(tokenizer.parts_),
      skip_special_tokens_(skip_special_tokens),
      stream_(parts_->decoder.start()) {}

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  const std::string* token = parts_->token(id);
  if (token != nullptr && !(skip_special_tokens_ && parts_->special_ids.contains(id))) {
    stream_.push(*token, text);
  }
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  stream_.finish(text);
  return text;
}

}  // namespace moesaic
