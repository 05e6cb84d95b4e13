#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

void ByteBuffer::Unmap::operator()(std::byte* data) const noexcept {
  munmap(data, mapped_bytes);
}

ByteBuffer::ByteBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugeFrom;
  const std::size_t wanted = round_up(bytes, huge ? kHugePage : 4096);
  const std::size_t mapped = huge ? wanted + kHugePage : wanted;
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(address != MAP_FAILED, ErrorKind::resource, "cannot allocate {} bytes: {}", bytes,
          std::strerror(errno));
  auto* begin = static_cast<std::byte*>(address);
  if (huge) {  // keep a 2 MiB-aligned part and give the rest back
    const auto value = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t head = round_up(value, kHugePage) - value;
    if (head > 0) munmap(begin, head);
    if (head < kHugePage) munmap(begin + head + wanted, kHugePage - head);
    begin += head;
    madvise(begin, wanted, MADV_HUGEPAGE);
  }
  data_ = std::unique_ptr<std::byte, Unmap>(begin, Unmap{wanted});
}

}  // namespace moesaic
