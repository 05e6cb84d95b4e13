#include "src/checkpoint/packed_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/checksum.h"
#include "src/checkpoint/packed_directory.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

using test::error_message;
using test::TemporaryDirectory;
using test::write_text;

constexpr std::int64_t kElements = 5000;

PackedManifest one_vector() {
  PackedManifest manifest;
  PackedEntry entry;
  entry.name = "vector";
  entry.rows = 1;
  entry.depth = kElements;
  entry.plain = DType::f32;
  manifest.entries = {entry};
  lay_out(manifest);
  return manifest;
}

/// Writes a converted directory of one vector that is `value` everywhere.
void convert(const std::string& directory, float value, bool overwrite = false) {
  PackedOutput output(directory, overwrite);
  PackedManifest manifest = one_vector();
  output.make_shards(manifest);
  const std::vector<float> values(kElements, value);
  const auto bytes = std::as_bytes(std::span(values));
  const ShardWriter writer(directory, manifest);
  writer.write(manifest.entries[0], 8000, bytes.subspan(8000));
  writer.write(manifest.entries[0], 0, bytes.first(8000));
  writer.sync(0);
  manifest.entries[0].checksum = checksum(bytes);
  output.publish(manifest);
}

float first_value(const std::string& directory) {
  const PackedDirectory packed = PackedDirectory::open(directory);
  const PackedEntry& entry = packed.at("vector");
  packed.verify(entry, packed.bytes(entry));
  float value = 0;
  std::memcpy(&value, packed.bytes(entry).data(), sizeof value);
  return value;
}

std::int64_t num_files(const std::string& directory) {
  return std::distance(fs::directory_iterator(directory), {});
}

TEST(PackedWriter, DirectoryAppearsWholeAndAlone) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  {
    const PackedOutput output(out, false);
    EXPECT_FALSE(fs::exists(out));
    EXPECT_TRUE(fs::exists(out + ".part"));
  }
  convert(out, 2.5F);
  EXPECT_EQ(first_value(out), 2.5F);
  EXPECT_EQ(num_files(directory.path()), 1);
  EXPECT_EQ(num_files(out), 2);  // a shard and the manifest, no lock
}

TEST(PackedWriter, AnEmptyDirectoryIsTaken) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  fs::create_directory(out);
  convert(out + "/", 1.0F);
  EXPECT_EQ(first_value(out), 1.0F);
}

TEST(PackedWriter, AnAbandonedConversionLeavesNothing) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  {
    PackedOutput output(out, false);
    output.make_shards(one_vector());
  }
  EXPECT_EQ(num_files(directory.path()), 0);
  { const PackedOutput nothing_found(out, false, PackedOutput::Found::kept); }
  EXPECT_EQ(num_files(directory.path()), 0);
}

TEST(PackedWriter, ShardsThatAreToBeKeptStayForTheNextConversion) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  PackedManifest manifest = one_vector();
  manifest.entries.push_back(manifest.entries.front());
  lay_out(manifest, 1);
  ASSERT_EQ(manifest.shards.size(), 2U);
  {
    PackedOutput output(out, false);
    output.make_shards(manifest);
    write_text(output.record_path(), "a record");
    write_text(out + ".part/stray", "");
    output.keep(manifest.shards[1]);
  }
  EXPECT_EQ(num_files(out + ".part"), 3) << "a lock, the record and a shard";
  {
    const PackedOutput output(out, false, PackedOutput::Found::kept);
    write_text(out + ".part/stray", "");
  }
  EXPECT_EQ(num_files(out + ".part"), 4) << "one that ends before it says what it keeps";
  {
    PackedOutput output(out, false, PackedOutput::Found::kept);
    EXPECT_FALSE(output.has_shard(manifest.shards[0]));
    EXPECT_TRUE(output.has_shard(manifest.shards[1]));
    output.keep(manifest.shards[1]);
    output.make_shards(manifest);
    EXPECT_TRUE(output.has_shard(manifest.shards[0]));
    EXPECT_EQ(test::read_text(output.record_path()), "a record");
  }
  { const PackedOutput other(out, false); }
  EXPECT_EQ(num_files(directory.path()), 0);
}

TEST(PackedWriter, AKilledConversionLeavesNoDirectoryOfThatNameAndTheNextTakesOver) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    PackedOutput output(out, false);
    output.make_shards(one_vector());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(out));
  EXPECT_TRUE(fs::exists(out + ".part"));
  write_text(out + ".part/packed-00007-of-00007.bin", "stale");
  convert(out, 3.0F);
  EXPECT_EQ(first_value(out), 3.0F);
  EXPECT_EQ(num_files(directory.path()), 1);
  EXPECT_EQ(num_files(out), 2);
}

TEST(PackedWriter, TwoCannotWriteTheSame) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const PackedOutput first(out, false);
  EXPECT_NE(error_message([&] { PackedOutput(out, false); }, ErrorKind::usage)
                .find("another process is converting"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(out + ".part"));
}

TEST(PackedWriter, WhatIsThereIsReplacedOnlyIfAskedAndOurs) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  convert(out, 1.0F);
  EXPECT_NE(error_message([&] { PackedOutput(out, false); }, ErrorKind::usage).find("--overwrite"),
            std::string::npos);
  EXPECT_EQ(first_value(out), 1.0F);
  convert(out, 2.0F, true);
  EXPECT_EQ(first_value(out), 2.0F);
  EXPECT_EQ(num_files(directory.path()), 1);

  const std::string other = directory.path_of("other");
  fs::create_directory(other);
  write_text(other + "/letter.txt", "dear");
  EXPECT_NE(error_message([&] { PackedOutput(other, true); }, ErrorKind::usage)
                .find("not made by moesaic convert"),
            std::string::npos);
  EXPECT_EQ(num_files(other), 1);
  write_text(directory.path_of("file"), "");
  EXPECT_NE(error_message([&] { PackedOutput(directory.path_of("file"), true); }, ErrorKind::usage)
                .find("no directory"),
            std::string::npos);
}

TEST(PackedWriter, WhatStandsInTheWayIsNotTouched) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  fs::create_directory(out + ".part");
  write_text(out + ".part/letter.txt", "dear");
  EXPECT_NE(error_message([&] { PackedOutput(out, true); }, ErrorKind::resource)
                .find("not from a conversion"),
            std::string::npos);
  EXPECT_EQ(num_files(out + ".part"), 1);
  EXPECT_NE(
      error_message([&] { PackedOutput(directory.path_of("no/out"), false); }, ErrorKind::resource)
          .find("cannot be made"),
      std::string::npos);
}

TEST(PackedWriter, SmallFilesOfTheModelAreCopied) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  fs::create_directory(model);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors", "notes.txt"}) {
    write_text(model + "/" + name, name);
  }
  const std::string out = directory.path_of("out");
  PackedOutput output(out, false);
  PackedManifest manifest;
  output.copy_files(model, manifest);
  output.publish(manifest);
  EXPECT_EQ(num_files(out), 3);
  EXPECT_EQ(test::read_text(out + "/tokenizer.json"), "tokenizer.json");
  const PackedDirectory packed = PackedDirectory::open(out);
  ASSERT_EQ(packed.manifest().copies.size(), 2U);
  for (const PackedFile& copy : packed.manifest().copies) packed.verify_copy(copy);
  write_text(out + "/config.json", "config.jsoN");
  EXPECT_NE(error_message([&] {
              packed.verify_copy(packed.manifest().copies[0]);
            }).find("config.json: altered"),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
