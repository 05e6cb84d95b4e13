#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/row_label.h"

namespace moesaic {

/// What happened to an exchange of rows.
struct ExchangeEvent {
  std::string_view what;       // "start", "done", "gave up"
  std::uint64_t exchange = 0;  // its number in its group
  int ranks = 1;               // of the group
  RowLabel label{};
  std::int64_t rows = 0;  // sent; of "done" received
  std::int64_t bytes = 0;
  std::string_view missing{};  // of "gave up"
};

/// The last events of one rank, JSONL. They stand in a file from the moment they happen, so that
/// those of a rank that is stopped or killed are there too. Adding one allocates nothing; a disk
/// that is full meanwhile loses events and nothing else. Of one thread.
class ExchangeTrace {
 public:
  static constexpr std::int64_t kEvents = 256;

  /// Makes the file, or empties it. Throws Error{resource} naming it if it cannot be written.
  explicit ExchangeTrace(const std::string& path);
  /// Takes the file away, but on the way out of an error: then all of it is there, in order.
  ~ExchangeTrace();
  ExchangeTrace(const ExchangeTrace&) = delete;
  ExchangeTrace& operator=(const ExchangeTrace&) = delete;

  void add(const ExchangeEvent& event) noexcept;

 private:
  /// Once there are more than kEvents, new ones have taken the places of the oldest.
  void put_in_order() noexcept;

  static constexpr std::int64_t kLineBytes = 384;
  static constexpr std::int64_t kMissingBytes = 128;  // more of it is cut
  using Line = std::array<char, kLineBytes>;

  std::string path_;
  int file_ = -1;
  std::int64_t events_ = 0;
  int exceptions_ = 0;  // under way when this was made
};

}  // namespace moesaic
