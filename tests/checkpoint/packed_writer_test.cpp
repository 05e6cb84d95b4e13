#include "src/checkpoint/packed_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "base/checksum.h"
#include "src/checkpoint/packed_directory.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace {

/// How this program's system changes names.
bool can_exchange_names = true;
bool can_name_directories = true;

}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if ((flags & RENAME_EXCHANGE) != 0 && !can_exchange_names) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (std::string_view(from).ends_with(".part") && !can_name_directories) {
    errno = EIO;
    return -1;
  }
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

namespace moesaic {
namespace {

namespace fs = std::filesystem;

using test::error_message;
using test::num_files;
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

TEST(PackedWriter, ALinkStaysAndWhereItLeadsIsTheDirectory) {
  const TemporaryDirectory directory;
  const TemporaryDirectory scratch;
  const std::string link = directory.path_of("link");
  fs::create_directory(scratch.path_of("out"));
  fs::create_directory_symlink(scratch.path_of("out"), link);
  convert(link, 1.0F);
  convert(link + "/", 2.0F, true);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(first_value(scratch.path_of("out")), 2.0F);
  EXPECT_EQ(num_files(directory.path()) + num_files(scratch.path()), 2);
  fs::create_directory_symlink("nowhere", directory.path_of("dangling"));
  EXPECT_NE(
      error_message([&] { PackedOutput(directory.path_of("dangling"), true); }, ErrorKind::usage)
          .find("dangling: leads nowhere: No such file"),
      std::string::npos);
  const std::string above = link + "/../beside";  // of where the link leads
  convert(above, 3.0F);
  EXPECT_EQ(first_value(scratch.path_of("beside")), 3.0F);
}

TEST(PackedWriter, WhatCannotBeReplacedIsRefusedBeforeTheWork) {
  const auto refusal = [](const std::string& out) {
    return error_message([&] { PackedOutput(out, true); }, ErrorKind::usage);
  };
  EXPECT_NE(refusal("/proc").find("/proc: is a mount point"), std::string::npos);
  const TemporaryDirectory directory;
  const fs::path before = fs::current_path();
  fs::current_path(directory.path());
  for (const std::string& name : {std::string("."), std::string("./"), directory.path()}) {
    EXPECT_NE(refusal(name).find(": is the working directory"), std::string::npos) << name;
  }
  fs::current_path(before);
  EXPECT_EQ(num_files(directory.path()), 0);
  EXPECT_FALSE(fs::exists(directory.path() + ".part"));
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

TEST(PackedWriter, AWholeConversionThatCannotHaveItsNameStays) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const PackedManifest manifest = one_vector();
  {
    PackedOutput output(out, false);
    output.make_shards(manifest);
    write_text(output.record_path(), "a record");
    output.keep(manifest.shards[0]);
    fs::create_directory(out);
    write_text(out + "/letter.txt", "dear");
    EXPECT_NE(
        error_message([&] { output.publish(manifest); }, ErrorKind::usage).find("--overwrite"),
        std::string::npos);
  }
  EXPECT_EQ(num_files(out), 1);
  EXPECT_EQ(num_files(out + ".part"), 3) << "a lock, the record and a shard";
  fs::remove_all(out);
  PackedOutput output(out, false, PackedOutput::Found::kept);
  EXPECT_EQ(test::read_text(output.record_path()), "a record");
  EXPECT_TRUE(output.has_shard(manifest.shards[0]));
  output.keep(manifest.shards[0]);
  output.make_shards(manifest);
  output.publish(manifest);
  EXPECT_EQ(num_files(out), 2) << "a shard and the manifest";
  EXPECT_EQ(num_files(directory.path()), 1);
}

TEST(PackedWriter, WhatAKilledOneHasReplacedIsTakenAway) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  convert(out, 1.0F);
  convert(out + ".part", 2.0F);
  convert(out, 3.0F, true);
  EXPECT_EQ(first_value(out), 3.0F);
  EXPECT_EQ(num_files(directory.path()), 1);
  convert(out + ".part", 2.0F);
  fs::remove_all(out);
  EXPECT_NE(
      error_message([&] { convert(out, 4.0F); }, ErrorKind::resource).find("not from a conversion"),
      std::string::npos);
  EXPECT_EQ(first_value(out + ".part"), 2.0F) << "nobody has said that it may be replaced";
}

/// Network file systems.
TEST(PackedWriter, ADirectoryIsReplacedWhereNamesCannotBeExchanged) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  convert(out, 1.0F);
  can_exchange_names = false;
  convert(out, 2.0F, true);
  EXPECT_EQ(first_value(out), 2.0F);
  EXPECT_EQ(num_files(directory.path()), 1);

  convert(out + ".part.old", 1.0F);  // a process was killed before it took it away
  convert(out, 3.0F, true);
  EXPECT_EQ(first_value(out), 3.0F);
  EXPECT_EQ(num_files(directory.path()), 1);

  can_name_directories = false;
  EXPECT_NE(error_message([&] { convert(out, 4.0F, true); }, ErrorKind::resource)
                .find("out: cannot be replaced by"),
            std::string::npos);
  EXPECT_EQ(first_value(out), 3.0F) << "it has its name again";
  EXPECT_EQ(num_files(directory.path()), 1);
  EXPECT_NE(error_message([&] { convert(directory.path_of("new"), 4.0F); }, ErrorKind::resource)
                .find("new.part: cannot get the name"),
            std::string::npos);
  can_name_directories = true;
  can_exchange_names = true;
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

}  // namespace
}  // namespace moesaic
