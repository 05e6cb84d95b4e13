#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

/// The value of every rank, in rank order. Collective.
template <typename T>
requires(std::is_trivially_copyable_v<T>) std::vector<T> gather_values(Communicator& comm,
                                                                       const T& value) {
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// `values` of rank `root` reaches all, whatever its length. Collective.
template <typename T>
requires(std::is_trivially_copyable_v<T>) void broadcast_vector(Communicator& comm,
                                                                std::vector<T>& values,
                                                                int root = 0) {
  auto count = static_cast<std::int64_t>(values.size());
  comm.broadcast(std::as_writable_bytes(std::span(&count, 1)), root);
  values.resize(static_cast<std::size_t>(count));
  comm.broadcast(std::as_writable_bytes(std::span(values)), root);
}

}  // namespace moesaic
