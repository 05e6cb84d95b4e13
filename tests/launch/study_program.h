#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// A study in a directory of its own, as moesaic study runs it.
class StudyProgram : public testing::Test {
 protected:
  /// Writes the study's file: lines that all share, and `more`.
  void describe(const std::string& more, const std::string& job = "prompt") const {
    write_text(config_, "kind = weak\njob = " + job + "\nmodel = " + kDemo + "\ntext = " + kText +
                            "\nout = " + out_ +
                            "\nthreads = 1\nrepetitions = 2\nn-prompt = 16\nno-roofs = true\n" +
                            more);
  }
  /// Eighteen points that start quickly: one process for each.
  void describe_quick() const {
    describe(
        "launcher = env STUDY_RANKS={ranks}\nranks = 1\nsequences = 1,2,3\nbatch-size = 4,8,16\n"
        "expert-format = bf16,int8\n");
  }
  /// A launcher of lines that $ranks and the program in "$@" are told to.
  [[nodiscard]] std::string launcher(const std::string& lines) const {
    const std::string path = directory_.path_of("launcher.sh");
    write_text(path, "ranks=$1; shift\n" + lines);
    return "launcher = sh " + path + " {ranks}\n";
  }
  /// Its last line: starts that many.
  static constexpr const char* kStartRanks =
      "exec mpirun --oversubscribe --bind-to none -n $ranks \"$@\"\n";
  [[nodiscard]] Arguments run(const Arguments& more = {}) const {
    return joined({"study", "run", config_}, more);
  }
  [[nodiscard]] std::vector<Json> rows() const {
    std::vector<Json> rows;
    for (const std::string& line : lines_of(read_text(out_ + "/study.jsonl"))) {
      rows.push_back(Json::parse(line, "study.jsonl"));
    }
    return rows;
  }
  /// The complete points, by the names of their files.
  [[nodiscard]] std::map<std::string, std::string> points() const {
    std::map<std::string, std::string> found;
    if (!std::filesystem::exists(out_ + "/points")) return found;
    for (const auto& entry : std::filesystem::directory_iterator(out_ + "/points")) {
      if (entry.path().extension() != ".json") continue;
      found[entry.path().filename().string()] = read_text(entry.path().string());
    }
    return found;
  }

  const std::string kText = kData + "/demo-heldout.txt";
  TemporaryDirectory directory_;
  std::string config_ = directory_.path_of("study.ini");
  std::string out_ = directory_.path_of("out");
};

}  // namespace moesaic::test
