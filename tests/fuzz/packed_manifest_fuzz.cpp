// libFuzzer: any bytes as the body of a converted directory's manifest, rightly signed. The reader
// must refuse them with an Error, or give weights that lie inside their shards.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/checksum.h"
#include "base/error.h"
#include "src/checkpoint/packed_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesaic;
  const std::string body(reinterpret_cast<const char*>(data), size);
  const std::string text =
      "{\"checksum\": \"" + checksum_text(checksum(std::string_view(body))) + "\",\n" + body;
  try {
    const PackedManifest manifest = parse_manifest(text, "fuzz");
    for (const PackedEntry& entry : manifest.entries) {
      const std::int64_t shard = manifest.shards.at(static_cast<std::size_t>(entry.shard)).bytes;
      if (entry.bytes < 0 || entry.offset < 0 || entry.bytes > shard - entry.offset ||
          entry.bytes != entry.data_bytes()) {
        std::abort();
      }
    }
    static_cast<void>(parse_manifest(manifest_text(manifest), "fuzz"));  // reads back
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) std::abort();
  }
  return 0;
}
