#include "src/checkpoint/packed_directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "src/checkpoint/matrix_source.h"
#include "src/checkpoint/packed_writer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

using test::error_message;
using test::TemporaryDirectory;
using test::write_text;

/// A converted directory with plain rows [3, 700] and a packed matrix.
class PackedDirectoryTest : public testing::Test {
 protected:
  PackedDirectoryTest() : out_(directory_.path_of("out")), rows_(3 * 700) {
    PackedManifest manifest;
    manifest.entries.resize(2);
    PackedEntry& plain = manifest.entries[0];
    plain.name = "plain";
    plain.rows = 3;
    plain.depth = 700;
    plain.plain = DType::f32;
    PackedEntry& packed = manifest.entries[1];
    packed.name = "packed";
    packed.rows = 17;
    packed.depth = 40;
    packed.layout = {.format = Format::bf16};
    lay_out(manifest);

    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i] = static_cast<float>(i) / 4;
    const std::vector<std::byte> panels(static_cast<std::size_t>(packed.bytes), std::byte{5});
    plain.checksum = checksum(std::as_bytes(std::span(rows_)));
    packed.checksum = checksum(panels);
    PackedOutput output(out_, false);
    output.make_shards(manifest);
    const ShardWriter writer(out_, manifest);
    writer.write(plain, 0, std::as_bytes(std::span(rows_)));
    writer.write(packed, 0, panels);
    output.publish(manifest);
    shard_ = out_ + "/" + manifest.shards[0].name;
  }

  [[nodiscard]] std::string open_error() const {
    return error_message([&] { static_cast<void>(PackedDirectory::open(out_)); });
  }

  TemporaryDirectory directory_;
  std::string out_;
  std::string shard_;
  std::vector<float> rows_;
};

TEST_F(PackedDirectoryTest, GivesWhatWasWritten) {
  const PackedDirectory packed = PackedDirectory::open(out_);
  const PackedEntry& entry = packed.at("packed");
  EXPECT_EQ(entry.rows, 17);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed.bytes(entry).data()) % 64, 0U);
  EXPECT_EQ(packed.bytes(entry)[0], std::byte{5});
  for (const PackedEntry& each : packed.manifest().entries) {
    packed.verify(each, packed.bytes(each));
  }
  const MatrixSource rows(packed.tensor(packed.at("plain")));
  EXPECT_EQ(rows.rows(), 3);
  std::vector<float> row(700);
  rows.read_rows(2, 1, std::span(row));
  EXPECT_EQ(std::memcmp(row.data(), rows_.data() + 1400, 2800), 0);
  EXPECT_NE(error_message([&] { static_cast<void>(packed.tensor(entry)); }).find("not plain rows"),
            std::string::npos);
  EXPECT_NE(error_message([&] {
              static_cast<void>(packed.at("other"));
            }).find("manifest.json: weight \"other\" is missing"),
            std::string::npos);
}

TEST_F(PackedDirectoryTest, IsToldFromACheckpoint) {
  EXPECT_TRUE(PackedDirectory::is_one(out_));
  fs::remove(out_ + "/manifest.json");
  EXPECT_TRUE(PackedDirectory::is_one(out_));
  write_text(out_ + "/adapter_model.safetensors", "");
  EXPECT_TRUE(PackedDirectory::is_one(out_));
  write_text(out_ + "/model.safetensors", "");
  EXPECT_FALSE(PackedDirectory::is_one(out_));
  EXPECT_FALSE(PackedDirectory::is_one(directory_.path()));
  EXPECT_FALSE(PackedDirectory::is_one(directory_.path_of("none")));
}

TEST_F(PackedDirectoryTest, AFlippedBitIsFoundAndPlaced) {
  std::string text = test::read_text(shard_);
  const std::size_t at = text.size() - 3000;
  text[at] = static_cast<char>(text[at] ^ 4);
  write_text(shard_, text);
  const PackedDirectory packed = PackedDirectory::open(out_);
  const PackedEntry& good = packed.at("plain");
  packed.verify(good, packed.bytes(good));
  const PackedEntry& bad = packed.at("packed");
  const std::string message = error_message([&] { packed.verify(bad, packed.bytes(bad)); });
  EXPECT_NE(message.find(shard_ + ": weight \"packed\" (bytes 12288 to "), std::string::npos)
      << message;
}

TEST_F(PackedDirectoryTest, ShardsThatAreMissingOrOfAnotherSizeAreNamed) {
  const auto size = fs::file_size(shard_);
  fs::resize_file(shard_, size - 1);
  EXPECT_NE(open_error().find(shard_ + ": "), std::string::npos) << open_error();
  EXPECT_NE(open_error().find("altered or cut short"), std::string::npos);
  fs::resize_file(shard_, size + 1);
  EXPECT_NE(open_error().find("altered or cut short"), std::string::npos);
  fs::remove(shard_);
  EXPECT_EQ(open_error(), shard_ + ": no such file");
}

TEST_F(PackedDirectoryTest, WithoutManifestItIsNotWhole) {
  fs::remove(out_ + "/manifest.json");
  EXPECT_NE(open_error().find("packed weights without manifest.json"), std::string::npos);
}

}  // namespace
}  // namespace moesaic
