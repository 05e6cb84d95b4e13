#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

/// Ranks, and how messages name them: "3", "0 and 2", "0, 1 and 5".
class RankList {
 public:
  void add(int rank) { ranks_.push_back(rank); }
  [[nodiscard]] bool empty() const noexcept { return ranks_.empty(); }
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<int> ranks_;
};

/// A call that all ranks of a group have to make, where none of them knows who has.
struct Meeting {
  std::uint64_t group = 0;  // the same for all its ranks and no others; 0: no meeting
  std::uint64_t number = 0;

  /// Whether who waits in `other` has made this call.
  [[nodiscard]] bool has_seen(const Meeting& other) const noexcept {
    return group != 0 && other.group == group && other.number >= number;
  }
};

/// What a rank waits for.
struct Awaited {
  std::string text{};        // "rank 2 to make room and the rows of rank 0"
  std::vector<int> ranks{};  // from whom it comes, in any order: 0 and 2; as far as that is known
  Meeting meeting{};         // for those of `ranks` that have not made this call

  /// Waits for this as well: `more` is words that follow "and".
  void add(const std::string& more, const std::vector<int>& its_ranks);
};

/// A set of ranks that can travel, of the first kMost ones of a job.
class RankBits {
 public:
  static constexpr int kMost = 1024;

  void add(int rank) noexcept;
  [[nodiscard]] bool has(int rank) const noexcept;

 private:
  static constexpr int kWordBits = 64;
  std::array<std::uint64_t, kMost / kWordBits> words_{};
};

}  // namespace moesaic
