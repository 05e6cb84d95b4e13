// Preloaded into a program: refuses threads once MPI has started, as a system does that has no more
// (tests/launch/refused_threads_test.cpp).

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  static const auto is_started =
      reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  int started = 0;
  if (is_started != nullptr) (void)is_started(&started);
  return started != 0 ? EAGAIN : create(thread, attributes, start, argument);
}
