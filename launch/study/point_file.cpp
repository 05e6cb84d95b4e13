#include "launch/study/point_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace moesaic {

void PointPlace::make() const {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(out_) / "points", error);
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", out_, error.message());
}

std::string PointPlace::path(const std::string& id, const char* kind) const {
  return (std::filesystem::path(out_) / "points" / (id + kind)).string();
}

std::optional<PointClaim> PointClaim::take(const PointPlace& place, const std::string& id) {
  const std::string part = place.path(id, ".part");
  OutputFile output(part, OutputFile::Mode::kept, place.file(id));
  if (!output.lock()) return std::nullopt;
  return PointClaim(part, place.file(id), std::move(output));
}

void PointClaim::complete(const std::string& text) {
  output_.resize(0);
  output_.write_at(0, std::as_bytes(std::span(text)));
  output_.sync();
  require(std::rename(part_.c_str(), file_.c_str()) == 0, ErrorKind::resource,
          "{}: cannot be written: {}", file_, std::strerror(errno));
  sync_name(file_);
}

}  // namespace moesaic
