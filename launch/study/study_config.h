#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/options/choices.h"

namespace moesaic {

/// That a point has.
inline constexpr std::int64_t kMostStudyRanks = std::int64_t{1} << 20;

/// What is kept or grown while the number of ranks grows, or what else is compared.
enum class StudyKind {
  strong,   ///< the work is the same for all
  weak,     ///< the work of a rank
  experts,  ///< the work and the experts of a rank, of a shape: the layer grows
  batch,    ///< as weak; sizes of a batch are compared
  format    ///< as weak; formats of weights are compared
};

template <>
inline constexpr auto kChoices<StudyKind> =
    std::to_array<NamedValue<StudyKind>>({{"strong", StudyKind::strong},
                                          {"weak", StudyKind::weak},
                                          {"experts", StudyKind::experts},
                                          {"batch", StudyKind::batch},
                                          {"format", StudyKind::format}});

/// What becomes of points that can never run, as their values do not go together.
enum class ImpossiblePoints {
  refuse,  ///< with the whole study, before anything runs
  skip     ///< they are recorded as skipped, and the others run
};

template <>
inline constexpr auto kChoices<ImpossiblePoints> = std::to_array<NamedValue<ImpossiblePoints>>(
    {{"refuse", ImpossiblePoints::refuse}, {"skip", ImpossiblePoints::skip}});

/// A line of the file: an option, and the values that points have of it.
struct StudyAxis {
  std::string name{};  // as in the option table; or "ranks", "link"
  std::vector<std::string> values{};
  std::int64_t line = 0;
};

/// A file that describes a study (docs/scaling.md).
struct StudyConfig {
  std::string path{};
  StudyKind kind = StudyKind::strong;
  std::string out{};
  std::string launcher = "auto";
  std::optional<std::int64_t> baseline{};  // ranks; nothing: the fewest
  ImpossiblePoints impossible = ImpossiblePoints::refuse;
  std::vector<StudyAxis> axes{};  // in the order of the file
};

/// Reads it. Throws Error{usage} naming file, line and name for what it cannot say, Error{file} if
/// there is no such file.
[[nodiscard]] StudyConfig read_study(const std::string& path);

}  // namespace moesaic
