#include "base/json.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/small_file.h"

namespace moesaic {

namespace {

/// Members of an object in the order of the file. The library's own ordered map searches one by
/// one, which takes minutes for a large vocabulary; this one looks long objects up by hash. What
/// reading calls is replaced here; other changes of its base would not be found.
template <typename Key, typename Member, typename Less, typename Allocator>
struct FileOrderMap : nlohmann::ordered_map<Key, Member, Less, Allocator> {
  using Base = nlohmann::ordered_map<Key, Member, Less, Allocator>;
  using Base::Base;
  using typename Base::const_iterator;
  using typename Base::iterator;

  Member& operator[](const Key& key) {
    const iterator found = find(key);
    if (found != this->end()) return found->second;
    Base::Container::emplace_back(key, Member{});
    const std::size_t size = this->size();
    if (size == kIndexFrom) {
      for (std::size_t at = 0; at + 1 < size; ++at)
        places_.emplace((this->begin() + static_cast<std::ptrdiff_t>(at))->first, at);
    }
    if (size >= kIndexFrom) places_.emplace(key, size - 1);
    return this->back().second;
  }
  iterator find(const Key& key) {
    return this->begin() + (std::as_const(*this).find(key) - this->cbegin());
  }
  const_iterator find(const Key& key) const {
    if (this->size() < kIndexFrom) return Base::find(key);
    const auto place = places_.find(key);
    return place == places_.end() ? this->cend()
                                  : this->cbegin() + static_cast<std::ptrdiff_t>(place->second);
  }

 private:
  static constexpr std::size_t kIndexFrom = 16;
  std::unordered_map<Key, std::size_t> places_;
};

}  // namespace

using Value = nlohmann::basic_json<FileOrderMap>;

struct Json::Document {
  std::string name;
  Value root;
  std::unordered_set<const void*>
      long_integers;  ///< beyond 64 bits: the library has them as floats
};

namespace {

const Value& value_of(const void* value) {
  return *static_cast<const Value*>(value);
}

/// No file that is read here nests deeper, and some of what follows is recursive.
constexpr std::size_t kMaxDepth = 200;

/// Refuses a second member of the same name in one object, and absurd nesting. A pass of its own
/// over the text: the library's callbacks during parsing take quadratic time on large objects.
class StructureCheck final : public nlohmann::json_sax<Value> {
 public:
  explicit StructureCheck(const std::string& document) : document_(document) {}

  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    require(keys_.back().insert(name).second, ErrorKind::file,
            "{}: key \"{}\" stands twice in one object", document_, name);
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) long_integers_.push_back(floats_);
    ++floats_;
    return true;
  }
  bool string(std::string&) override { return true; }
  bool binary(Value::binary_t&) override { return true; }
  /// Stops here; the parser proper meets the same error and describes it.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  /// Of all that the library takes for floats, in the order of the text, those that are integers.
  [[nodiscard]] const std::vector<std::size_t>& long_integers() const { return long_integers_; }

 private:
  bool enter() {
    require(keys_.size() < kMaxDepth, ErrorKind::file, "{}: nested deeper than {} levels",
            document_, kMaxDepth);
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& document_;
  std::vector<std::unordered_set<std::string>> keys_;  ///< of the open objects, empty for arrays
  std::size_t floats_ = 0;
  std::vector<std::size_t> long_integers_;
};

/// The places of those that StructureCheck has counted. `floats`: how many came before `value`.
void find_long_integers(const Value& value, std::span<const std::size_t> counted,
                        std::size_t& floats, std::unordered_set<const void*>& found) {
  if (value.is_number_float() && std::ranges::binary_search(counted, floats++)) {
    found.insert(&value);
  }
  if (!value.is_structured()) return;
  for (const Value& member : value) find_long_integers(member, counted, floats, found);
}

/// What the library says, "[json.exception.KIND.NUMBER] text": the text. It counts lines from the
/// beginning of what it was given; of a single line, which `name` may place in a file of many, it
/// is left out.
std::string why_invalid(std::string_view text, std::string_view what) {
  what.remove_prefix(what.starts_with('[') ? std::min(what.find(' ') + 1, what.size()) : 0);
  std::string why(what);
  constexpr std::string_view kFirstLine = "at line 1, column";
  const std::size_t at = why.find(kFirstLine);
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  if (is_one_line && at != std::string::npos) why.replace(at, kFirstLine.size(), "at column");
  return why;
}

constexpr std::size_t kMostShown = 60;

std::string dumped(const Value& value) {
  return value.dump(-1, ' ', false, Value::error_handler_t::replace);
}

/// Appends what `value` looks like, and stops soon after kMostShown bytes.
void append_start(const Value& value, std::string& out) {
  if (value.is_string()) {
    out += dumped(value.get_ref<const std::string&>().substr(0, kMostShown));
  } else if (!value.is_structured()) {
    out += dumped(value);
  } else {
    out += value.is_array() ? '[' : '{';
    const char* separator = "";
    for (const auto& [key, member] : value.items()) {
      if (out.size() > kMostShown) return;
      out += separator;
      if (value.is_object()) out += dumped(key.substr(0, kMostShown)) + ":";
      append_start(member, out);
      separator = ",";
    }
    out += value.is_array() ? ']' : '}';
  }
}

[[noreturn]] void wrong_type(const Json& json, const Value& value, std::string_view wanted) {
  std::string found;
  append_start(value, found);
  if (found.size() > kMostShown) found = found.substr(0, kMostShown - 3) + "...";
  fail(ErrorKind::file, "{}: expected {}, found {} {}", json.where(), wanted, value.type_name(),
       found);
}

}  // namespace

Json Json::parse(std::string_view text, std::string document) {
  auto parsed = std::make_shared<Document>();
  parsed->name = std::move(document);
  try {
    StructureCheck check(parsed->name);
    Value::sax_parse(text, &check);
    parsed->root = Value::parse(text);
    std::size_t floats = 0;
    if (!check.long_integers().empty()) {
      find_long_integers(parsed->root, check.long_integers(), floats, parsed->long_integers);
    }
  } catch (const Value::exception& error) {
    const std::string_view other = mistaken_for(text);
    require(other.empty(), ErrorKind::file, "{}: {}", parsed->name, other);
    fail(ErrorKind::file, "{}: not valid JSON: {}", parsed->name, why_invalid(text, error.what()));
  }
  const void* root = &parsed->root;
  return {std::move(parsed), root, ""};
}

Json Json::read_file(const std::string& path, std::int64_t max_bytes) {
  return parse(moesaic::read_file(path, max_bytes), path);
}

bool Json::is_null() const {
  return value_of(value_).is_null();
}
bool Json::is_object() const {
  return value_of(value_).is_object();
}
bool Json::is_array() const {
  return value_of(value_).is_array();
}
bool Json::is_string() const {
  return value_of(value_).is_string();
}
bool Json::is_number() const {
  return value_of(value_).is_number();
}
bool Json::is_integer() const {
  return value_of(value_).is_number_integer();
}
bool Json::is_long_integer() const {
  const Value& value = value_of(value_);
  const bool is_beyond = value.is_number_unsigned() &&
                         value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  return is_beyond || document_->long_integers.contains(value_);
}
bool Json::is_bool() const {
  return value_of(value_).is_boolean();
}

std::string Json::where() const {
  return path_.empty() ? document_->name : document_->name + ": " + path_;
}

std::optional<Json> Json::find(std::string_view key) const {
  const Value& object = value_of(value_);
  if (!object.is_object()) wrong_type(*this, object, "an object");
  const auto found = object.find(std::string(key));
  if (found == object.end() || found->is_null()) return std::nullopt;
  return Json(document_, &*found,
              path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

Json Json::at(std::string_view key) const {
  auto found = find(key);
  require(found.has_value(), ErrorKind::file, "{}: field \"{}\" is missing", where(), key);
  return *std::move(found);
}

std::int64_t Json::size() const {
  const Value& value = value_of(value_);
  if (!value.is_array() && !value.is_object()) wrong_type(*this, value, "an array or object");
  return static_cast<std::int64_t>(value.size());
}

Json Json::at(std::int64_t index) const {
  const Value& array = value_of(value_);
  if (!array.is_array()) wrong_type(*this, array, "an array");
  require(index >= 0 && std::cmp_less(index, array.size()), ErrorKind::file,
          "{}: has {} elements, number {} was wanted", where(), array.size(), index);
  return {document_, &array[static_cast<std::size_t>(index)], fmt::format("{}[{}]", path_, index)};
}

void Json::for_each(
    const std::function<void(const std::string& key, const Json& value)>& call) const {
  const Value& value = value_of(value_);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      call(key, Json(document_, &member, path_.empty() ? key : path_ + "." + key));
    }
    return;
  }
  if (!value.is_array()) wrong_type(*this, value, "an array or object");
  std::int64_t index = 0;
  for (const Value& element : value) {
    call("", Json(document_, &element, fmt::format("{}[{}]", path_, index++)));
  }
}

std::string Json::as_string() const {
  return std::string(as_string_view());
}

std::string_view Json::as_string_view() const {
  const Value& value = value_of(value_);
  if (!value.is_string()) wrong_type(*this, value, "a string");
  return value.get_ref<const std::string&>();
}

std::int64_t Json::as_int() const {
  const Value& value = value_of(value_);
  if (is_long_integer()) {
    const bool is_negative = value.get<double>() < 0;
    wrong_type(*this, value, is_negative ? "an integer from -2^63 on" : "an integer below 2^63");
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  // Some writers spell whole numbers as 1.0 or 1e6.
  if (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>() &&
      std::abs(value.get<double>()) < 0x1p53) {
    return static_cast<std::int64_t>(value.get<double>());
  }
  wrong_type(*this, value, "an integer");
}

std::int64_t Json::as_int(std::int64_t least, std::int64_t most) const {
  const std::int64_t number = as_int();
  require(number >= least && number <= most, ErrorKind::file, "{}: {} is not from {} to {}",
          where(), number, least, most);
  return number;
}

double Json::as_double() const {
  const Value& value = value_of(value_);
  if (!value.is_number()) wrong_type(*this, value, "a number");
  return value.get<double>();
}

bool Json::as_bool() const {
  const Value& value = value_of(value_);
  if (!value.is_boolean()) wrong_type(*this, value, "true or false");
  return value.get<bool>();
}

std::string json_quote(std::string_view value) {
  return Value(value).dump(-1, ' ', false, Value::error_handler_t::replace);
}

std::string json_float(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void JsonWriter::key(std::string_view name) {
  if (!body_.empty()) body_ += ", ";
  body_ += json_quote(name);
  body_ += ": ";
}

JsonWriter& JsonWriter::field(std::string_view name, std::string_view value) {
  return raw_field(name, json_quote(value));
}

JsonWriter& JsonWriter::field(std::string_view name, std::int64_t value) {
  return raw_field(name, std::to_string(value));
}

JsonWriter& JsonWriter::field(std::string_view name, double value) {
  return raw_field(name, std::isfinite(value) ? fmt::format("{}", value) : "null");
}

JsonWriter& JsonWriter::field(std::string_view name, bool value) {
  return raw_field(name, value ? "true" : "false");
}

JsonWriter& JsonWriter::raw_field(std::string_view name, std::string_view raw) {
  key(name);
  body_ += raw;
  return *this;
}

}  // namespace moesaic
