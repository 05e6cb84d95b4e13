// Small files of a model that a converted directory has too.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "src/checkpoint/packed_directory.h"
#include "src/checkpoint/packed_writer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

using test::error_message;
using test::num_files;
using test::TemporaryDirectory;
using test::write_text;

TEST(PackedCopies, TemplatesBesidesTheUsualOneAreCopiedToo) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  const std::string out = directory.path_of("out");
  const std::string folder = std::string("/") + std::string(kTemplateFolder);
  fs::create_directories(model + folder);
  write_text(model + folder + "/tool_use.jinja", "tools");
  write_text(model + folder + "/notes.txt", "no template");
  const auto convert_all = [&] {
    PackedOutput output(out, true);
    PackedManifest manifest;
    output.copy_files(model, manifest);
    output.make_shards(manifest);
    output.publish(manifest);
  };
  convert_all();
  EXPECT_EQ(test::read_text(out + folder + "/tool_use.jinja"), "tools");
  EXPECT_EQ(num_files(out + folder), 1);
  PackedDirectory::open(out).verify_copies(true);
  write_text(model + folder + "/tool_use.jinja", "other tools");
  convert_all();
  EXPECT_EQ(test::read_text(out + folder + "/tool_use.jinja"), "other tools");
  EXPECT_EQ(num_files(directory.path()), 2);
  write_text(out + folder + "/letter.txt", "dear");
  EXPECT_NE(error_message(convert_all, ErrorKind::usage).find("was not made by"),
            std::string::npos);
  fs::remove(out + folder + "/letter.txt");
  write_text(out + folder + "/tool_use.jinja", "altered");
  EXPECT_NE(error_message([&] { PackedDirectory::open(out).verify_copies(true); }, ErrorKind::file)
                .find("tool_use.jinja: altered"),
            std::string::npos);
}

TEST(PackedCopies, SmallFilesOfTheModelAreCopied) {
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
  EXPECT_NO_THROW(packed.verify_copies(true));
  fs::remove(out + "/tokenizer.json");
  EXPECT_NO_THROW(packed.verify_copies(false)) << "who reads it misses it";
  EXPECT_THROW(packed.verify_copies(true), Error);
  write_text(out + "/config.json", "config.jsoN");
  EXPECT_THROW(packed.verify_copies(false), Error);
  EXPECT_NE(error_message([&] {
              packed.verify_copy(packed.manifest().copies[0]);
            }).find("config.json: altered"),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
