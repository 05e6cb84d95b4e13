#include "src/generate/orders.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "base/error.h"

namespace moesaic {
namespace {

/// Values one after the other. Ranks of a job have the same byte order and the same program.
class Writer {
 public:
  template <typename T>
  requires(std::is_trivially_copyable_v<T>) void operator()(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(values.size());
    const auto bytes = std::as_bytes(std::span(values));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires(std::is_trivially_copyable_v<T>) void operator()(T& value) {
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    std::size_t count = 0;
    (*this)(count);
    require(count <= bytes_.size() / sizeof(T), ErrorKind::internal, "orders that are cut short");
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    require(count <= bytes_.size(), ErrorKind::internal, "orders that are cut short");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::span<const std::byte> bytes_;
};

/// Shows `stream`, a Writer or a Reader, what travels of a request.
void visit(auto& stream, auto& request) {
  stream(request.tokens);
  stream(request.max_new_tokens);
  auto& sampling = request.sampling;
  stream(sampling.temperature);
  stream(sampling.top_k);
  stream(sampling.top_p);
  stream(sampling.min_p);
  stream(sampling.seed);
  stream(sampling.repetition_penalty);
  stream(sampling.frequency_penalty);
  stream(sampling.presence_penalty);
  stream(sampling.penalty_last_n);
  stream(sampling.logit_bias);
  stream(request.stream);
  stream(request.group);
  stream(request.stop_tokens);
  stream(request.logprobs);
  stream(request.logits_from);
}

std::vector<std::byte> encode(const Orders& orders) {
  Writer out;
  out(orders.dismissed);
  out(orders.dropped);
  out(orders.submitted.size());
  for (const auto& [id, request] : orders.submitted) {
    out(id);
    visit(out, request);
  }
  return std::move(out.bytes());
}

void decode(std::span<const std::byte> bytes, Orders& orders) {
  Reader in(bytes);
  std::size_t submissions = 0;
  in(orders.dismissed);
  in(orders.dropped);
  in(submissions);
  for (std::size_t i = 0; i < submissions; ++i) {
    auto& [id, request] = orders.submitted.emplace_back();
    in(id);
    visit(in, request);
  }
}

}  // namespace

void broadcast_orders(Communicator& world, Orders& orders) {
  if (world.size() == 1) return;
  const bool speaks = world.rank() == 0;
  std::vector<std::byte> bytes;
  if (speaks && !orders.empty()) bytes = encode(orders);
  std::uint64_t count = bytes.size();
  world.broadcast(std::as_writable_bytes(std::span(&count, 1)), 0);
  if (count == 0) return;
  bytes.resize(count);
  world.broadcast(bytes, 0);
  if (!speaks) decode(bytes, orders);
}

}  // namespace moesaic
