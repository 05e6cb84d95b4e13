#include "launch/study/point_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "base/directory.h"
#include "base/error.h"

namespace moesaic {

void PointPlace::make() const {
  make_directories(std::filesystem::path(out_) / "points");
}

std::string PointPlace::path(const std::string& id, const char* kind) const {
  return (std::filesystem::path(out_) / "points" / (id + kind)).string();
}

std::optional<PointClaim> PointClaim::take(const PointPlace& place, const std::string& id) {
  const std::string part = place.path(id, ".part");
  for (;;) {
    OutputFile output(part, OutputFile::Mode::kept, place.file(id));
    if (!output.lock()) return std::nullopt;
    // Else the one who had it has done with it since it was opened.
    if (output.is_at(part)) return PointClaim(part, place.file(id), std::move(output));
  }
}

PointClaim::PointClaim(PointClaim&& other) noexcept
    : part_(std::exchange(other.part_, {})),
      file_(std::move(other.file_)),
      output_(std::move(other.output_)) {}

PointClaim::~PointClaim() {
  if (!part_.empty()) (void)std::remove(part_.c_str());
}

void PointClaim::complete(const std::string& text) {
  output_.resize(0);
  output_.write_at(0, std::as_bytes(std::span(text)));
  output_.sync();
  require(std::rename(part_.c_str(), file_.c_str()) == 0, ErrorKind::resource,
          "{}: cannot be written: {}", file_, std::strerror(errno));
  part_.clear();
  sync_name(file_);
}

}  // namespace moesaic
