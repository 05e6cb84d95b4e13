#include "base/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moesaic {

OpenFile::OpenFile(const std::string& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  require(descriptor_ >= 0, ErrorKind::file, "{}: {}", path,
          errno == ENOENT ? "no such file" : std::strerror(errno));
  struct stat status = {};
  const bool is_known = ::fstat(descriptor_, &status) == 0;
  const int reason = errno;
  size_bytes_ = status.st_size;
  if (is_known && S_ISREG(status.st_mode)) return;
  ::close(descriptor_);
  fail(ErrorKind::file, "{}: {}", path, is_known ? "not a regular file" : std::strerror(reason));
}

OpenFile::~OpenFile() {
  ::close(descriptor_);
}

}  // namespace moesaic
