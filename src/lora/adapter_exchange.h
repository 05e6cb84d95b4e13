#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "src/lora/adapter_set.h"

namespace moesaic {

/// Brings values of adapters, masters or what an optimizer keeps of each, from the ranks that hold
/// them to files and back. In files stand all adapters of the model, in its order, wherever they
/// are held, so that as many ranks as one likes can read what others have written.
class AdapterExchange {
 public:
  /// `all`: the adapters of the whole model, common ones first, as AdapterSet orders them; `set`
  /// holds this rank's. `counts_experts`: on one of the ranks that hold the same experts. All must
  /// outlive this.
  AdapterExchange(const AdapterSet& set, std::span<const AdapterSpec> all, Communicator& world,
                  bool counts_experts);

  /// Whether this is the rank that takes and gives.
  [[nodiscard]] bool is_first() const noexcept { return world_.rank() == 0; }

  /// Factor A (empty where it is that of the adapter before) and B of adapter `index` of the model.
  using Take =
      std::function<void(std::int64_t index, std::span<const float> a, std::span<const float> b)>;
  /// The same of the next adapter, to be filled in.
  using Give = std::function<void(std::span<float> a, std::span<float> b)>;

  /// Calls `take` on rank 0 for every adapter of the model with its part of `values`, which are in
  /// the order of AdapterSet::masters() on each rank. Collective.
  void collect(std::span<const float> values, const Take& take) const;
  /// The reverse: `give` fills in on rank 0, `values` is overwritten on all. Collective.
  void distribute(std::span<float> values, const Give& give) const;
  /// What either takes besides `values` on rank 0, which takes most.
  [[nodiscard]] static std::int64_t scratch_bytes(std::span<const AdapterSpec> all);

 private:
  /// Adapters [first, end) of the model whose values go together.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t end = 0;
    std::int64_t values = 0;
  };
  [[nodiscard]] static std::vector<Piece> pieces(std::span<const AdapterSpec> all);
  [[nodiscard]] static std::int64_t most_values(std::span<const AdapterSpec> all);  // of a piece
  [[nodiscard]] const AdapterSpec& spec(std::int64_t index) const;                  // of all_
  template <typename Visit>
  void for_each_held(const Piece& piece, const Visit& visit) const;

  const AdapterSet& set_;
  std::span<const AdapterSpec> all_;
  Communicator& world_;
  bool counts_experts_;
  std::vector<std::int64_t> held_;  // [all] its index in set_, or -1
};

}  // namespace moesaic
