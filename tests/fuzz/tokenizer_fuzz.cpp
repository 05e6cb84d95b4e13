// libFuzzer: any bytes as a tokenizer.json, or as the text for a small tokenizer. Whatever loads
// must encode and decode, and what a stream gives must be what decode gives.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "src/tokenizer/tokenizer.h"
#include "src/tokenizer/utf8.h"

namespace {

constexpr std::string_view kSmall = R"({"added_tokens":[{"id":9,"content":"<s>","special":true}],
  "normalizer":{"type":"NFC"},
  "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},
  "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"ByteLevel"}]},
  "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ã":4,"©":5,"Ã©":6,"<0xC3>":7,"<unk>":8},
           "merges":["a b","Ã ©"],"unk_token":"<unk>","byte_fallback":true}})";

void check(const moesaic::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  moesaic::StreamDecoder stream(tokenizer);
  std::string decoded;
  for (const std::int32_t id : ids) decoded += stream.push(id);
  decoded += stream.finish();
  if (decoded != tokenizer.decode(ids) || !moesaic::is_valid_utf8(decoded)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const moesaic::Tokenizer small = moesaic::Tokenizer::from_json(kSmall, "small");
  check(small, bytes);
  try {
    check(moesaic::Tokenizer::from_json(bytes, "fuzz"), "ab é <s>\xFF 12 \n\n a");
  } catch (const moesaic::Error& error) {
    if (error.kind() == moesaic::ErrorKind::internal) std::abort();
  }
  return 0;
}
