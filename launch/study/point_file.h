#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/output_file.h"

namespace moesaic {

/// Where the points of a study lie: a file for each in OUT/points, named by the point's id, and
/// there only when it is complete.
class PointPlace {
 public:
  /// `out`: the study's directory.
  explicit PointPlace(std::string out) : out_(std::move(out)) {}

  /// Makes the directories. Throws Error{resource}.
  void make() const;
  [[nodiscard]] const std::string& out() const noexcept { return out_; }
  [[nodiscard]] std::string file(const std::string& id) const { return path(id, ".json"); }
  /// What the ranks of a point wrote: to their standard output, and to the other one.
  [[nodiscard]] std::string output(const std::string& id) const { return path(id, ".out"); }
  [[nodiscard]] std::string log(const std::string& id) const { return path(id, ".log"); }

 private:
  friend class PointClaim;
  [[nodiscard]] std::string path(const std::string& id, const char* kind) const;
  std::string out_{};
};

/// The right of one process to run a point: others that go through the same study leave it out. A
/// process that is killed loses it; one that is destroyed leaves nothing behind.
class PointClaim {
 public:
  ~PointClaim();
  PointClaim(PointClaim&& other) noexcept;
  PointClaim& operator=(PointClaim&&) = delete;

  /// Nothing if another process has it.
  [[nodiscard]] static std::optional<PointClaim> take(const PointPlace& place,
                                                      const std::string& id);
  /// Writes the point's file and gives it its name. Throws Error{resource}.
  void complete(const std::string& text);

 private:
  PointClaim(std::string part, std::string file, OutputFile output)
      : part_(std::move(part)), file_(std::move(file)), output_(std::move(output)) {}
  std::string part_{};  // empty: it is complete, or another's
  std::string file_{};
  OutputFile output_;
};

}  // namespace moesaic
