#include "base/small_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/open_file.h"

namespace moesaic {
namespace {

/// Files begin with `first`; letters of any case, after white space, if it is a `text`.
struct Kind {
  std::string_view first;
  bool text;
  std::string_view what;
};

constexpr std::string_view kWebPage =
    "a web page (an error, or a login), which was stored in place of the file: download it again";
constexpr std::string_view kPickle =
    "PyTorch's pickled weights, which are not read: load the model with transformers and save it "
    "with save_pretrained";

constexpr std::array<Kind, 8> kKinds = {{
    {"version https://git-lfs.github.com/spec/", true,
     "a Git LFS pointer, not the file itself: run git lfs pull in its directory, or download the "
     "file"},
    {"<!doctype html", true, kWebPage},
    {"<html", true, kWebPage},
    {"<?xml", true, kWebPage},
    {"GGUF", false, "a GGUF file, which is not read: get the Hugging Face form of this model"},
    {std::string_view("PK\x03\x04"), false,
     "a zip archive, which is not read: unpack it; if PyTorch wrote it, load the model with "
     "transformers and save it with save_pretrained"},
    {std::string_view("\x80\x02"), false, kPickle},
    {std::string_view("\x1f\x8b"), false, "a gzip archive, which is not read: unpack it"},
}};

bool starts_with_text(std::string_view text, std::string_view first) {
  return text.size() >= first.size() &&
         std::equal(first.begin(), first.end(), text.begin(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) ==
                  std::tolower(static_cast<unsigned char>(b));
         });
}

}  // namespace

bool file_exists(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return true;
  require(errno == ENOENT || errno == ENOTDIR, ErrorKind::file, "{}: {}", path,
          std::strerror(errno));
  return false;
}

std::string read_file(const std::string& path, std::int64_t max_bytes) {
  const OpenFile file(path);
  require(file.size_bytes() <= max_bytes, ErrorKind::file, "{}: {} bytes, at most {} are accepted",
          path, file.size_bytes(), max_bytes);
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::read(file.descriptor(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    require(count >= 0, ErrorKind::file, "{}: cannot be read: {}", path, std::strerror(errno));
    require(count > 0, ErrorKind::file, "{}: cut short by another program while it was read", path);
    done += static_cast<std::size_t>(count);
  }
  return text;
}

std::string_view mistaken_for(std::string_view beginning) noexcept {
  const std::size_t start = std::min(beginning.find_first_not_of(" \t\r\n"), beginning.size());
  for (const Kind& kind : kKinds) {
    const bool is_this = kind.text ? starts_with_text(beginning.substr(start), kind.first)
                                   : beginning.starts_with(kind.first);
    if (is_this) return kind.what;
  }
  return {};
}

}  // namespace moesaic
