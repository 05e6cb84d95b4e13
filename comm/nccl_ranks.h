#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/device.h"
#include "comm/communicator.h"
#include "comm/nccl_library.h"

namespace moesaic {

/// Ranks with a GPU each that move rows from one's memory to another's, by NCCL. Waits have a
/// deadline; an error of NCCL, or a rank that does not come, is an Error{peer}. What is under way
/// on the GPU is given up before anything is thrown, so that its memory can be freed.
class NcclRanks {
 public:
  struct Setup {
    std::shared_ptr<const NcclLibrary> library;
    Communicator& ranks;  // who they are; their rows go on while this rank waits
    Device& device;       // of this rank and no other
    double deadline_seconds = 0;
  };
  /// Collective over `ranks`, which must outlive this, as the device must.
  explicit NcclRanks(const Setup& setup);
  /// Waits for what is under way, but not on the way out of an error: then it is given up.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  /// Rows in device memory, one after the other: counts[p] of them for peer p, or from it, by
  /// ascending p. Those of the own rank have their place among them, and do not travel.
  struct Rows {
    CudaAddress at = 0;
    std::span<const std::int64_t> counts{};  // [ranks]
  };
  /// Asks for rows to be sent and received, each of `row_bytes`, behind all that the device was
  /// asked for before. Collective; what a rank sends is what the other one expects.
  void exchange(const Rows& send, const Rows& receive, std::int64_t row_bytes);
  /// Until the device's mark is reached.
  void wait_for_mark();

  [[nodiscard]] const NcclLibrary& library() const noexcept { return *setup_.library; }

 private:
  void join();
  [[nodiscard]] NcclResult ask(
      const Rows& rows, std::int64_t row_bytes,
      const std::function<NcclResult(CudaAddress, std::size_t, int)>& call) const;
  /// Until the last call is done: with it, all it asks for stands in the device's order.
  void settle(std::string_view call);
  [[nodiscard]] bool is_settled(std::string_view call);
  void check(NcclResult result, std::string_view call);
  /// Gives up what is under way if `work` throws.
  void or_abort(const std::function<void()>& work);
  [[nodiscard]] bool has_finished() const noexcept;

  Setup setup_;
  NcclRanksHandle handle_ = nullptr;
  int exceptions_ = 0;  // under way when this was made
};

}  // namespace moesaic
