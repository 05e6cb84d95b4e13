#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace moesaic {

/// One exchange of rows, as a transport carries it out.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  /// Does what can be done now; returns whether all rows have been sent and received. Throws
  /// Error{peer} if a peer disagrees about the rows.
  virtual bool progress() = 0;
  /// What is missing: "rank 2 to make room and the rows of rank 0".
  [[nodiscard]] virtual std::string missing() const = 0;
};

/// What one rank does while it waits, in whatever call. It drives all exchanges that it has under
/// way: else two ranks that wait in different calls could wait for each other. And it gives the
/// core away: more ranks than cores must not be slow, nor other work on the machine. The longer a
/// wait lasts, the longer it sleeps between looks: a rank without work costs no core.
class IdleTime {
 public:
  void add(RowExchange& exchange) { exchanges_.push_back(&exchange); }
  void remove(RowExchange& exchange) noexcept { std::erase(exchanges_, &exchange); }

  /// To be called between two looks; the wait has lasted for `waited`.
  void pass(std::chrono::nanoseconds waited);

 private:
  std::vector<RowExchange*> exchanges_;
  std::chrono::steady_clock::time_point crowded_until_{};
};

}  // namespace moesaic
