// libFuzzer: any bytes as a safetensors file. The reader must refuse them with an Error or give
// tensors inside the file; memory errors are the sanitizers' to find.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "src/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  try {
    for (const auto& tensor : moesaic::parse_safetensors(std::as_bytes(bytes), "fuzz")) {
      unsigned sum = 0;
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      if (sum > 255U * size) std::abort();
    }
  } catch (const moesaic::Error& error) {
    if (error.kind() != moesaic::ErrorKind::file) std::abort();
  }
  return 0;
}
