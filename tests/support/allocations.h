#pragma once

#include <cstdint>

// Allocations of a program that has allocations.cpp among its sources, and with it an operator new
// and an mmap that count: Buffers are mapped.

namespace moesaic::test {

/// Whether they are counted: not under a sanitizer, which has an operator new of its own.
[[nodiscard]] bool counts_allocations();
/// Of this thread so far.
[[nodiscard]] std::int64_t allocations_of_thread() noexcept;
/// Of all threads so far.
[[nodiscard]] std::int64_t allocations_of_all() noexcept;
/// Of operator new, not given back yet, of all threads.
[[nodiscard]] std::int64_t live_allocations() noexcept;

}  // namespace moesaic::test
