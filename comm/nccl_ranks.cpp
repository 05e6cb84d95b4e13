#include "comm/nccl_ranks.h"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/core_yield.h"
#include "base/error.h"

namespace moesaic {
namespace {

using NcclClock = std::chrono::steady_clock;

constexpr double kFinishSeconds = 10;
constexpr std::string_view kMovingRows = "rows from GPU to GPU";

double seconds_since(NcclClock::time_point start) {
  return std::chrono::duration<double>(NcclClock::now() - start).count();
}

/// How the first rank gets on with the name of the group, which all need.
struct NcclInvitation {
  NcclResult result = kNcclSuccess;
  NcclId id{};
};

}  // namespace

NcclRanks::NcclRanks(const Setup& setup) : setup_(setup), exceptions_(std::uncaught_exceptions()) {
  or_abort([&] { join(); });
}

void NcclRanks::join() {
  Communicator& ranks = setup_.ranks;
  setup_.device.make_current();
  NcclInvitation invitation;
  if (ranks.rank() == 0) invitation.result = library().unique_id(&invitation.id);
  ranks.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), 0);
  check(invitation.result, "ncclGetUniqueId");
  NcclConfig config;
  constexpr std::string_view kCall = "ncclCommInitRankConfig";
  check(library().init(&handle_, ranks.size(), invitation.id, ranks.rank(), &config), kCall);
  settle(kCall);
}

NcclRanks::~NcclRanks() {
  if (handle_ == nullptr) return;
  if (std::uncaught_exceptions() == exceptions_ && has_finished()) {
    library().destroy(handle_);
  } else {
    library().abort(handle_);
  }
}

/// Rows that left this rank may still be on their way to others: all finish together.
bool NcclRanks::has_finished() const noexcept {
  const auto start = NcclClock::now();
  NcclResult state = library().finalize(handle_);
  CoreYield core;
  while (state == kNcclInProgress && seconds_since(start) < kFinishSeconds) {
    core.pass();
    if (library().async_error(handle_, &state) != kNcclSuccess) return false;
  }
  return state == kNcclSuccess;
}

void NcclRanks::check(NcclResult result, std::string_view call) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const char* const more = library().last_error(handle_);
  const bool has_more = more != nullptr && *more != '\0';
  fail(ErrorKind::peer, "rank {} of {}: NCCL {}: {}: {}{}", setup_.ranks.rank(),
       setup_.ranks.size(), library().version_text(), call, library().error_string(result),
       has_more ? fmt::format(" ({})", more) : "");
}

void NcclRanks::or_abort(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    if (handle_ != nullptr) library().abort(std::exchange(handle_, nullptr));
    throw;
  }
}

bool NcclRanks::is_settled(std::string_view call) {
  NcclResult state = kNcclSuccess;
  check(library().async_error(handle_, &state), "ncclCommGetAsyncError");
  check(state, call);
  return state == kNcclSuccess;
}

void NcclRanks::settle(std::string_view call) {
  const auto start = NcclClock::now();
  CoreYield core;
  while (!is_settled(call)) {
    require(seconds_since(start) < setup_.deadline_seconds, ErrorKind::peer,
            "rank {} of {}: NCCL {}: {} has not ended within {} s: is a rank missing?",
            setup_.ranks.rank(), setup_.ranks.size(), library().version_text(), call,
            setup_.deadline_seconds);
    setup_.ranks.progress();
    core.pass();
  }
}

NcclResult NcclRanks::ask(
    const Rows& rows, std::int64_t row_bytes,
    const std::function<NcclResult(CudaAddress, std::size_t, int)>& call) const {
  CudaAddress at = rows.at;
  for (int peer = 0; peer < setup_.ranks.size(); ++peer) {
    const std::int64_t bytes = rows.counts[static_cast<std::size_t>(peer)] * row_bytes;
    const bool travels = bytes > 0 && peer != setup_.ranks.rank();
    const NcclResult result =
        travels ? call(at, static_cast<std::size_t>(bytes), peer) : kNcclSuccess;
    if (result != kNcclSuccess && result != kNcclInProgress) return result;
    at += static_cast<CudaAddress>(bytes);
  }
  return kNcclSuccess;
}

void NcclRanks::exchange(const Rows& send, const Rows& receive, std::int64_t row_bytes) {
  or_abort([&] {
    const NcclLibrary& nccl = library();
    CudaStream const stream = setup_.device.make_current();
    check(nccl.group_start(), "ncclGroupStart");
    const NcclResult sent = ask(send, row_bytes, [&](CudaAddress at, std::size_t bytes, int peer) {
      return nccl.send(reinterpret_cast<const void*>(at), bytes, kNcclBytes, peer, handle_, stream);
    });
    const NcclResult received =
        ask(receive, row_bytes, [&](CudaAddress at, std::size_t bytes, int peer) {
          return nccl.receive(reinterpret_cast<void*>(at), bytes, kNcclBytes, peer, handle_,
                              stream);
        });
    const NcclResult ended = nccl.group_end();  // whatever was asked for
    check(sent, "ncclSend");
    check(received, "ncclRecv");
    check(ended, "ncclGroupEnd");
    settle(kMovingRows);
  });
}

void NcclRanks::wait_for_mark() {
  or_abort([&] {
    setup_.device.wait_for_mark(setup_.deadline_seconds, [&] {
      (void)is_settled(kMovingRows);
      setup_.ranks.progress();
    });
  });
}

}  // namespace moesaic
