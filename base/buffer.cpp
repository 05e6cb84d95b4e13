#include "base/buffer.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moesaic {

ByteBuffer::ByteBuffer(std::size_t bytes) : ByteBuffer(bytes, bytes) {}

ByteBuffer ByteBuffer::with_slack(std::size_t needed) {
  return {needed + needed / 4, needed};
}

ByteBuffer::ByteBuffer(std::size_t bytes, std::size_t needed)
    : pages_(PageMapping::own(bytes, needed)), size_(bytes) {
  require(pages_ || bytes == 0, ErrorKind::resource, "cannot allocate {} bytes: {}", bytes,
          std::strerror(errno));
}

}  // namespace moesaic
