#include "src/checkpoint/packed_manifest.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "kernels/packed_matrix.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;
using test::replaced;

PackedEntry matrix(const std::string& name, const Layout& layout, bool has_order) {
  PackedEntry entry;
  entry.name = name;
  entry.rows = 40;
  entry.depth = 100;
  entry.layout = layout;
  entry.scale = 0.1F;
  entry.has_order = has_order;
  entry.checksum = 0x123456789abcdef0;
  return entry;
}

PackedEntry plain(const std::string& name, DType dtype) {
  PackedEntry entry;
  entry.name = name;
  entry.rows = 3;
  entry.depth = 700;
  entry.plain = dtype;
  return entry;
}

PackedManifest example() {
  PackedManifest manifest;
  manifest.formats = {.expert = "int4_group128", .dense = "int8", .head = "auto"};
  manifest.copies = {{.name = "config.json", .bytes = 12, .checksum = 7}};
  manifest.entries = {
      plain("norm", DType::f32), plain("embedding", DType::bf16),
      matrix("wide", {.format = Format::int4_group, .group = 128, .wide_scales = true}, true),
      matrix("blocks", {.format = Format::fp8_block, .group = 32}, false),
      matrix("usual", {.format = Format::bf16}, false)};
  lay_out(manifest, 30000);
  return manifest;
}

/// The message for the example with one edit, its checksum being right.
std::string message_with(std::string_view from, std::string_view to) {
  const std::string text = replaced(manifest_text(example()), from, to);
  const std::string body = text.substr(text.find('\n') + 1);
  const std::string whole = "{\"checksum\": \"" + checksum_text(checksum(body)) + "\",\n" + body;
  return error_message([&] { static_cast<void>(parse_manifest(whole, "m.json")); });
}

TEST(PackedManifest, ReadsBackWhatWasWritten) {
  const PackedManifest wrote = example();
  const PackedManifest read = parse_manifest(manifest_text(wrote), "m.json");
  EXPECT_EQ(read.formats.expert, wrote.formats.expert);
  EXPECT_EQ(read.formats.dense, wrote.formats.dense);
  EXPECT_EQ(read.formats.head, wrote.formats.head);
  EXPECT_EQ(read.total_bytes(), wrote.total_bytes());
  ASSERT_EQ(read.copies.size(), 1U);
  EXPECT_EQ(read.copies[0].name, "config.json");
  EXPECT_EQ(read.copies[0].checksum, 7U);
  ASSERT_EQ(read.shards.size(), wrote.shards.size());
  EXPECT_EQ(read.shards.back().name, wrote.shards.back().name);
  ASSERT_EQ(read.entries.size(), wrote.entries.size());
  for (std::size_t i = 0; i < wrote.entries.size(); ++i) {
    const PackedEntry& a = read.entries[i];
    const PackedEntry& b = wrote.entries[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.rows, b.rows) << a.name;
    EXPECT_EQ(a.depth, b.depth) << a.name;
    EXPECT_EQ(a.plain, b.plain) << a.name;
    if (!a.plain) {
      EXPECT_EQ(a.scale, b.scale) << a.name;
      EXPECT_TRUE(a.layout == b.layout) << a.name;
    }
    EXPECT_EQ(a.has_order, b.has_order) << a.name;
    EXPECT_EQ(a.shard, b.shard) << a.name;
    EXPECT_EQ(a.offset, b.offset) << a.name;
    EXPECT_EQ(a.bytes, b.bytes) << a.name;
    EXPECT_EQ(a.checksum, b.checksum) << a.name;
  }
}

TEST(PackedManifest, EntriesAreAlignedAndShardsFilled) {
  const PackedManifest manifest = example();
  ASSERT_EQ(manifest.shards.size(), 2U);
  EXPECT_EQ(manifest.shards[0].name, "packed-00001-of-00002.bin");
  std::vector<std::int64_t> ends(manifest.shards.size(), 0);
  for (const PackedEntry& entry : manifest.entries) {
    std::int64_t& end = ends[static_cast<std::size_t>(entry.shard)];
    EXPECT_EQ(entry.offset, end) << entry.name;
    EXPECT_EQ(entry.offset % kPackedAlignment, 0);
    end = round_up(entry.offset + entry.bytes, kPackedAlignment);
  }
  for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(manifest.shards[i].bytes, ends[i]);
  EXPECT_LE(manifest.shards[0].bytes, 30000);
  EXPECT_EQ(manifest.entries[1].bytes, 3 * 700 * 2);
  EXPECT_EQ(manifest.entries[2].bytes, 3 * panel_bytes(manifest.entries[2].layout, 100) + 100 * 4);
}

TEST(PackedManifest, AnEntryLargerThanAShardHasOneForItself) {
  PackedManifest manifest = example();
  lay_out(manifest, 1);
  EXPECT_EQ(manifest.shards.size(), manifest.entries.size());
}

TEST(PackedManifest, AnyChangeIsNoticed) {
  const std::string text = manifest_text(example());
  for (const std::size_t at : {std::size_t{3}, std::size_t{20}, text.size() / 2, text.size() - 2}) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_NE(error_message([&] {
                static_cast<void>(parse_manifest(changed, "m.json"));
              }).find("m.json: "),
              std::string::npos)
        << at;
  }
  EXPECT_NE(error_message([&] {
              static_cast<void>(parse_manifest(text.substr(0, text.size() - 40), "m.json"));
            }).find("altered or cut short"),
            std::string::npos);
  EXPECT_EQ(error_message([] { static_cast<void>(parse_manifest("{}", "m.json")); }),
            "m.json: not a manifest that `moesaic convert` wrote");
  EXPECT_EQ(error_message([] { static_cast<void>(parse_manifest("", "m.json")); }),
            "m.json: not a manifest that `moesaic convert` wrote");
}

TEST(PackedManifest, WhatCannotBeIsRefused) {
  struct Case {
    const char* from;
    const char* to;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"\"version\": 2", "\"version\": 1", "version 1; this program reads version 2"},
      {"moesaic packed model", "a packed model", "kind: \"a packed model\""},
      {"\"int4_group\"", "\"int5_group\"", "weights[2].format: unknown format \"int5_group\""},
      {"\"group\": 128", "\"group\": 48", "no layout int4_group with a group of 48"},
      {"\"group\": 32", "\"group\": 64", "no layout fp8_block with a group of 64"},
      {"\"group\": 0", "\"group\": 1", "no layout bf16 with a group of 1"},
      {"\"wide_scales\": true", "\"wide_scales\": 1", "weights[2].wide_scales: expected"},
      {"\"order\": true", "\"order\": false", "\"wide\" of 40 x 100 has"},
      {"\"group\": 32, \"wide_scales\": false, \"scale\": 0.10000000149011612",
       "\"group\": 32, \"wide_scales\": false, \"scale\": 1e39", "is no finite float"},
      {"\"dtype\": \"BF16\"", "\"dtype\": \"I32\"", "weights[1].dtype: \"I32\" is neither"},
      {"\"name\": \"blocks\", \"rows\": 40", "\"name\": \"blocks\", \"rows\": 0",
       "weights[3].rows: 0 is not within 1"},
      {"\"name\": \"blocks\", \"rows\": 40", "\"name\": \"blocks\", \"rows\": 9999999999",
       "weights[3].rows: 9999999999 is not within 1"},
      {"\"name\": \"blocks\", \"rows\": 40, \"depth\": 100",
       "\"name\": \"blocks\", \"rows\": 1000000000, \"depth\": 1000000000",
       "has 1007812500000000000 bytes, not 6336"},
      {"\"name\": \"usual\", \"rows\": 40, \"depth\": 100",
       "\"name\": \"usual\", \"rows\": 2147483648, \"depth\": 2147483648",
       "rows: 2147483648 is not within 1 and 1073741824"},
      {"\"name\": \"usual\", \"rows\": 40, \"depth\": 100",
       "\"name\": \"usual\", \"rows\": 1073741824, \"depth\": 1073741824",
       "has 2305843009213693952 bytes, not"},
      {"\"name\": \"blocks\"", "\"name\": \"wide\"", "weight \"wide\" stands twice"},
      {"\"name\": \"blocks\"", "\"nam\": \"blocks\"", "\"name\" is missing"},
      {"\"offset\": 12288, ", "\"offset\": 12289, ", "offset 12289 is no multiple of 4096"},
      {"\"name\": \"packed-00001-of-00002.bin\"", "\"name\": \"../x\"", "no plain file name"},
      {"\"name\": \"config.json\"", "\"name\": \"\"", "copies[0].name: \"\" is no plain"},
      {"\"checksum\": \"0000000000000007\"", "\"checksum\": \"7\"", "is no checksum"},
      {"\"shards\": [", "\"shards\": [], \"other\": [",
       "weights[0].shard: 0 is not within 0 and -1"},
  };
  for (const Case& c : cases) {
    const std::string message = message_with(c.from, c.to);
    EXPECT_NE(message.find(c.said), std::string::npos) << c.to << ": " << message;
    EXPECT_TRUE(message.starts_with("m.json")) << message;
  }
}

TEST(PackedManifest, PlacesOutsideTheShardsAreRefused) {
  PackedManifest manifest = example();
  manifest.entries[0].offset = manifest.shards[0].bytes;
  EXPECT_NE(error_message([&] {
              static_cast<void>(parse_manifest(manifest_text(manifest), "m.json"));
            }).find("weights[0].offset"),
            std::string::npos);
  manifest = example();
  manifest.entries[4].bytes = manifest.shards[1].bytes + 1;
  EXPECT_NE(error_message([&] {
              static_cast<void>(parse_manifest(manifest_text(manifest), "m.json"));
            }).find("weights[4].bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
