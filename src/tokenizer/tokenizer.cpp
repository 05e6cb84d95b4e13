#include "src/tokenizer/tokenizer.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "src/tokenizer/added_tokens.h"
#include "src/tokenizer/bpe.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/post_processor.h"
#include "src/tokenizer/pre_tokenizer.h"
#include "src/tokenizer/tokenizer_config.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

/// The stages of encoding in their order, and what decoding needs.
struct Tokenizer::Parts {
  explicit Parts(const Json& file);

  /// `dir`: where it stands.
  void take(const TokenizerConfig& config, const std::string& dir);
  /// The last of all that changes it.
  void make_finders();

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
  void add_configured(AddedToken token, const Json& file);
  void make_special(AddedToken token);
  void look_for(const AddedToken& token);
  void add(const AddedToken& token, const Json& array);
  [[nodiscard]] std::int32_t next_id() const;

  /// What finders look for, and in which texts.
  struct Sought {
    AddedToken token;
    bool in_raw = false;
    bool in_normalized = false;
  };
  std::map<std::int32_t, Sought> sought_;  // by id
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

void Tokenizer::Parts::take(const TokenizerConfig& config, const std::string& dir) {
  for (const AddedToken& token : config.added) add_configured(token, *config.file);
  for (const auto& [name, token] : config.special_tokens.named) make_special(token);
  for (const AddedToken& token : config.special_tokens.others) make_special(token);
  if (!config.ends) return;
  const auto id_of = [&](const std::optional<std::string>& token) {
    const auto id = token ? token_id(*token) : std::nullopt;
    require(id.has_value() == token.has_value(), ErrorKind::file,
            "{}/tokenizer_config.json: there is no token \"{}\" to stand around texts", dir,
            token.value_or(""));
    return id;
  };
  post_processor = PostProcessor(id_of(config.ends->begin), id_of(config.ends->end));
}

void Tokenizer::Parts::add_configured(AddedToken token, const Json& file) {
  if (token.content.empty()) return;
  const auto known = token_id(token.content);
  token.id = known ? *known : next_id();
  if (!known) {
    const std::string* const other = model.vocabulary().token(token.id);
    require(other == nullptr, ErrorKind::file,
            "{}: added_tokens_decoder: \"{}\" would get id {}, which \"{}\" has in tokenizer.json",
            file.where(), token.content, token.id, other == nullptr ? "" : *other);
    added_tokens.add(token.content, token.id, file);
  }
  look_for(token);
}

/// As `tokenizers` gives them: by how many tokens the model has, whatever its largest id.
std::int32_t Tokenizer::Parts::next_id() const {
  const std::int64_t after_added = sought_.empty() ? 0 : std::int64_t{sought_.rbegin()->first} + 1;
  return static_cast<std::int32_t>(std::max(model.vocabulary().count(), after_added));
}

/// One that the model alone has is found in texts from now on.
void Tokenizer::Parts::make_special(AddedToken token) {
  const auto id = token_id(token.content);
  if (!id) return;
  token.id = *id;
  token.special = true;
  if (!sought_.contains(*id)) return look_for(token);
  special_ids.insert(*id);
}

/// As `tokenizers` does, also a second time: the last flags count; but the token stays special, and
/// is looked for as when it became so, others in each text that they were said to be in.
void Tokenizer::Parts::look_for(const AddedToken& token) {
  const bool stays =
      token.special ? !special_ids.insert(token.id).second : special_ids.contains(token.id);
  Sought& sought = sought_[token.id];
  sought.token = token;
  if (!stays) (token.normalized ? sought.in_normalized : sought.in_raw) = true;
}

void Tokenizer::Parts::make_finders() {
  for (const auto& [id, sought] : sought_) {
    const AddedToken& token = sought.token;
    if (sought.in_raw) raw_finder.add(token, token.content);
    if (!sought.in_normalized) continue;
    NormalizedText content{token.content};
    normalizer.apply(content);
    normalized_finder.add(token, content.text);
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
  look_for(token);
}

namespace {

/// Encodes one text and remembers the pieces that it has met.
class Encoding {
 public:
  Encoding(const Tokenizer::Parts& parts, bool with_spans)
      : parts_(parts), with_spans_(with_spans) {}

  EncodedText run(std::string_view text) && {
    for (const Segment& segment : parts_.raw_finder.split(text)) {
      const auto begin = static_cast<std::size_t>(segment.text.data() - text.data());
      if (segment.id) {
        add_token(*segment.id, {begin, begin + segment.text.size()});
      } else {
        add_text(segment.text, begin);
      }
    }
    return std::move(encoded_);
  }

 private:
  void add_token(std::int32_t id, Span span) {
    encoded_.ids.push_back(id);
    if (!with_spans_) return;
    encoded_.spans.push_back(span);
    inside_.push_back({});
  }

  /// Text without added tokens, which begins at byte `begin` of the whole.
  void add_text(std::string_view raw, std::size_t begin) {
    NormalizedText& text = texts_.emplace_back(NormalizedText{std::string(raw), begin == 0});
    if (with_spans_) align(text, begin);
    parts_.normalizer.apply(text);
    for (const Segment& segment : parts_.normalized_finder.split(text.text)) {
      const auto at = static_cast<std::size_t>(segment.text.data() - text.text.data());
      const Span* origins = with_spans_ ? text.origins.data() + at : nullptr;
      if (segment.id) {
        add_token(*segment.id, with_spans_ ? span_of(origins, {0, segment.text.size()}) : Span());
        continue;
      }
      PieceList& pieces =
          pieces_.emplace_back(Piece{segment.text, text.at_start && at == 0, origins});
      parts_.pre_tokenizer.apply(pieces);
      for (const Piece& piece : pieces.pieces()) add_piece(piece);
    }
  }

  /// Every byte comes from its character.
  static void align(NormalizedText& text, std::size_t begin) {
    text.aligned = true;
    text.origins.reserve(text.text.size());
    for (std::size_t at = 0; at < text.text.size();) {
      const std::size_t size = utf8_length(text.text[at]);
      text.origins.insert(text.origins.end(), size, {begin + at, begin + at + size});
      at += size;
    }
  }

  /// What bytes of a piece come from.
  static Span span_of(const Span* origins, Span bytes) {
    if (bytes.size() == 0) return {};
    return {origins[bytes.begin].begin, origins[bytes.end - 1].end};
  }

  void add_piece(const Piece& piece) {
    std::vector<std::int32_t>& ids = encoded_.ids;
    const auto [entry, is_new] = known_.try_emplace(piece.text, Span{ids.size(), ids.size()});
    Span& known = entry->second;
    if (is_new) {
      parts_.model.append_ids(piece.text, ids, with_spans_ ? &inside_ : nullptr);
      known.end = ids.size();
    } else {
      for (std::size_t i = known.begin; i < known.end; ++i) ids.push_back(ids[i]);
    }
    for (std::size_t i = known.begin; with_spans_ && i < known.end; ++i) {
      if (!is_new) inside_.push_back(Span(inside_[i]));
      encoded_.spans.push_back(span_of(piece.origins, inside_[i]));
    }
  }

  const Tokenizer::Parts& parts_;
  bool with_spans_;
  std::deque<NormalizedText> texts_;                  // viewed by the pieces
  std::deque<PieceList> pieces_;                      // viewed by the keys of known_
  std::unordered_map<std::string_view, Span> known_;  // where the tokens of a piece stand
  EncodedText encoded_;
  std::vector<Span> inside_;  // which bytes of its piece a token stands for
};

}  // namespace

Tokenizer Tokenizer::from_directory(const std::string& dir) {
  const std::filesystem::path folder(dir);
  const std::string path = (folder / "tokenizer.json").string();
  require(file_exists(path) || !file_exists((folder / "tiktoken.model").string()), ErrorKind::file,
          "{}: no such file; tiktoken.model is there, of which tools/kimi_tokenizer.py of "
          "Moesaic's sources makes one",
          path);
  return from_directory(dir, Json::read_file(path, kMaxListBytes));
}

Tokenizer Tokenizer::from_directory(const std::string& dir, const Json& file) {
  auto parts = std::make_shared<Parts>(file);
  parts->take(TokenizerConfig::read(dir), dir);
  parts->make_finders();
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string document) {
  auto parts = std::make_shared<Parts>(Json::parse(text, std::move(document)));
  parts->make_finders();
  return Tokenizer(std::move(parts));
}

EncodedText Tokenizer::encoded(std::string_view text, bool add_special_tokens,
                               bool with_spans) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  return parts_->post_processor.apply(Encoding(*parts_, with_spans).run(text), add_special_tokens);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encoded(text, add_special_tokens, false).ids;
}

EncodedText Tokenizer::encode_with_spans(std::string_view text, bool add_special_tokens) const {
  return encoded(text, add_special_tokens, true);
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
