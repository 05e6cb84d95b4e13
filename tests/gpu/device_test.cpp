// What a GPU gives back when it cannot be taken as a whole.

#include "base/device.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/gpu/fake_gpu.h"

namespace moesaic {
namespace {

constexpr CudaResult kRefused = 999;

/// What is taken and not given back.
struct Held {
  int contexts = 0;
  int streams = 0;
};
Held held;

/// The fake driver, which counts, and of which the test may change a function.
struct CountingDriver {
  CountingDriver() {
    held = {};
    functions.context_retain = [](CudaContext* context, CudaDevice) -> CudaResult {
      ++held.contexts;
      static int place;
      *context = reinterpret_cast<CudaContext>(&place);
      return kCudaSuccess;
    };
    functions.context_release = [](CudaDevice) -> CudaResult {
      --held.contexts;
      return kCudaSuccess;
    };
    functions.stream_create = [](CudaStream* stream, unsigned) -> CudaResult {
      ++held.streams;
      static int place;
      *stream = reinterpret_cast<CudaStream>(&place);
      return kCudaSuccess;
    };
    functions.stream_destroy = [](CudaStream) -> CudaResult {
      --held.streams;
      return kCudaSuccess;
    };
  }

  void expect_refusal() const {
    EXPECT_THROW(Device(driver, 0, {}), Error);
    EXPECT_EQ(held.contexts, 0);
    EXPECT_EQ(held.streams, 0);
  }

  std::shared_ptr<const CudaDriver> driver = fake_driver();
  CudaDriver& functions = const_cast<CudaDriver&>(*driver);
};

TEST(Device, gives_back_all_that_it_takes) {
  const CountingDriver counting;
  {
    const Device device(counting.driver, 0, {});
    EXPECT_EQ(held.contexts, 1);
    EXPECT_EQ(held.streams, 1);
  }
  EXPECT_EQ(held.contexts, 0);
  EXPECT_EQ(held.streams, 0);
}

TEST(Device, without_a_stream_gives_its_context_back) {
  const CountingDriver counting;
  counting.functions.stream_create = [](CudaStream*, unsigned) { return kRefused; };
  counting.expect_refusal();
}

TEST(Device, without_an_event_gives_its_stream_and_its_context_back) {
  const CountingDriver counting;
  counting.functions.event_create = [](CudaEvent*, unsigned) { return kRefused; };
  counting.expect_refusal();
}

}  // namespace
}  // namespace moesaic
