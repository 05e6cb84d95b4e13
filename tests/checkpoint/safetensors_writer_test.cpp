#include "src/checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "src/checkpoint/safetensors.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::num_files;
using test::TemporaryDirectory;

TEST(SafetensorsWriter, writes_in_any_order_what_the_reader_reads) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("logits.safetensors");
  std::vector<float> logits(7 * 3);
  std::iota(logits.begin(), logits.end(), 0.5F);
  const std::vector<std::int64_t> ids = {3, 1, 4, 1, 5, 9, 2};
  const std::vector<std::uint8_t> odd = {1, 2, 3};
  {
    SafetensorsWriter writer(path, {{"odd", DType::u8, {3}},
                                    {"logits", DType::f32, {7, 3}},
                                    {"input_ids", DType::i64, {7}},
                                    {"empty", DType::f16, {0, 4}}});
    const auto bytes = std::as_bytes(std::span(logits));
    writer.write("logits", 24, bytes.subspan(24, 36));
    writer.write("odd", 0, std::as_bytes(std::span(odd)));
    writer.write("logits", 60, bytes.subspan(60));
    writer.write("input_ids", 0, std::as_bytes(std::span(ids)));
    writer.write("logits", 0, bytes.first(24));
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  EXPECT_EQ(num_files(directory.path()), 1);
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 4U);
  const TensorView* read = file.find("logits");
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->dtype, DType::f32);
  EXPECT_EQ(read->shape, (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(std::memcmp(read->bytes.data(), logits.data(), read->bytes.size()), 0);
  EXPECT_EQ(std::memcmp(file.find("input_ids")->bytes.data(), ids.data(), 56), 0);
  EXPECT_EQ(std::memcmp(file.find("odd")->bytes.data(), odd.data(), 3), 0);
  for (const TensorView& tensor : file.tensors()) {
    const auto offset = tensor.bytes.data() - file.tensors().front().bytes.data();
    EXPECT_EQ(offset % dtype_bytes(tensor.dtype), 0) << tensor.name;
  }
}

TEST(SafetensorsWriter, an_unfinished_file_leaves_nothing_and_keeps_the_old_one) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a.safetensors");
  test::write_text(path, "old");
  {
    SafetensorsWriter writer(path, {{"x", DType::u8, {4}}});
    const std::vector<std::uint8_t> bytes = {1, 2, 3};
    writer.write("x", 0, std::as_bytes(std::span(bytes)));
    EXPECT_EQ(error_message([&] { writer.finish(); }, ErrorKind::internal),
              path + ": 3 of the 4 bytes of tensor \"x\" were written");
  }
  EXPECT_EQ(num_files(directory.path()), 1);
  EXPECT_EQ(test::read_text(path), "old");
}

TEST(SafetensorsWriter, refuses_what_was_not_declared) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a.safetensors");
  SafetensorsWriter writer(path, {{"x", DType::u8, {4}}});
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  const auto write = [&](const std::string& name, std::int64_t offset) {
    return error_message([&] { writer.write(name, offset, std::as_bytes(std::span(bytes))); },
                         ErrorKind::internal);
  };
  EXPECT_EQ(write("y", 0), path + ": tensor \"y\" was not declared");
  EXPECT_EQ(write("x", 2), path + ": 3 bytes at byte 2 do not fit tensor \"x\" of 4 bytes");
  EXPECT_EQ(write("x", -1), path + ": 3 bytes at byte -1 do not fit tensor \"x\" of 4 bytes");
  EXPECT_EQ(error_message(
                [&] {
                  SafetensorsWriter twice(path, {{"x", DType::u8, {1}}, {"x", DType::f32, {1}}});
                },
                ErrorKind::internal),
            "tensor \"x\" is declared twice");
}

TEST(SafetensorsWriter, names_the_path_where_it_cannot_write) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("none/a.safetensors");
  EXPECT_EQ(error_message([&] { SafetensorsWriter writer(path, {}); }, ErrorKind::resource),
            path + ": cannot be written: No such file or directory");
  EXPECT_EQ(
      error_message([&] { SafetensorsWriter writer(directory.path(), {}); }, ErrorKind::resource),
      directory.path() + ": cannot be written: it is a directory");
  const std::string pipe = directory.path_of("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_message([&] { SafetensorsWriter writer(pipe, {}); }, ErrorKind::resource),
            pipe + ": cannot be written: not a regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(SafetensorsWriter, says_at_once_that_the_disk_is_too_small) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a.safetensors");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {4096, before.rlim_max};
  const auto* old_action = std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR ? nullptr : "set";
  ASSERT_NE(old_action, nullptr);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_message(
      [&] {
        SafetensorsWriter writer(path, {{"x", DType::f32, {1000, 1000}}});
      },
      ErrorKind::resource);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_TRUE(message.starts_with(path + ": cannot reserve 4000")) << message;
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(num_files(directory.path()), 0);
}

}  // namespace
}  // namespace moesaic
