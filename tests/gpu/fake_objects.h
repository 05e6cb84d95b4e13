#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_driver.h"
#include "tests/gpu/ptx_machine/machine.h"

// What the handles of the fake driver point to.

namespace moesaic {
/// A number that the environment gives the fake driver.
inline long long fake_setting(const char* name, long long otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}
inline long long fake_memory_bytes() {
  return fake_setting("MOESAIC_FAKE_BYTES", 1LL << 30);
}

struct CudaContextTag {};
/// What a stream was asked for while it was captured.
struct CudaGraphTag {
  std::vector<std::function<bool()>> work;
  bool is_broken = false;
};
struct CudaGraphExecTag : CudaGraphTag {};
struct CudaStreamTag {
  std::deque<std::function<bool()>> work;  // false: not yet
  std::unique_ptr<CudaGraphTag> capture;   // null: work is to be done
  std::string failure;                     // sticky
  bool has_kernels = false;
  int waiting_for_others = 0;  // works of fake_cuda_ask that are not done
};
struct CudaEventTag {
  CudaStream stream = nullptr;
  bool is_captured = false;
};
struct CudaModuleTag {
  explicit CudaModuleTag(const std::string& text) : machine(text) {}
  ptx::Machine machine;
  std::vector<std::unique_ptr<struct CudaFunctionTag>> functions;
};
struct CudaFunctionTag {
  const CudaModuleTag* module;
  std::string name;
};
}  // namespace moesaic
