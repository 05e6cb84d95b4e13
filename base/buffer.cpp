#include "base/buffer.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moesaic {

ByteBuffer::ByteBuffer(std::size_t bytes) : pages_(PageMapping::own(bytes)), size_(bytes) {
  require(pages_ || bytes == 0, ErrorKind::resource, "cannot allocate {} bytes: {}", bytes,
          std::strerror(errno));
}

}  // namespace moesaic
