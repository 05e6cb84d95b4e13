// moesaic study: what starts the points where `launcher = auto` says nothing, in a Slurm that
// scripts play.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/study_program.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

class StudyLauncher : public StudyProgram {
 protected:
  /// A program in PATH: writes down with which words it was called, and becomes moesaic.
  void make_launcher(const std::string& name, const std::string& first) const {
    write_text(directory_.path_of(name), "#!/bin/sh\n" + first + "\necho " + name + " \"$@\" >> " +
                                             calls_ +
                                             "\nwhile [ \"${1##*/}\" != moesaic ]; do shift; done\n"
                                             "exec env -u SLURM_JOB_ID \"$@\"\n");
    fs::permissions(directory_.path_of(name), fs::perms::owner_all);
  }
  /// A study of one point in an allocation whose srun answers so when it is asked what it has.
  [[nodiscard]] ProgramResult run_in_slurm(const std::string& answer) const {
    describe("ranks = 1\n");
    fs::remove(calls_);
    fs::remove_all(out_);
    make_launcher("srun", "if [ \"$1\" = --mpi=list ]; then " + answer + "; exit; fi");
    make_launcher("mpirun", "");
    return run_moesaic(
        run(), {{"PATH", directory_.path() + ":" + std::getenv("PATH")}, {"SLURM_JOB_ID", "1"}});
  }
  void expect_started_by(const std::string& launcher) const {
    ASSERT_EQ(rows().size(), 1U);
    EXPECT_EQ(rows()[0].at("status").as_string(), "measured");
    const std::vector<std::string> calls = lines_of(read_text(calls_));
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_TRUE(calls[0].starts_with(launcher + " ")) << calls[0];
  }

  std::string calls_ = directory_.path_of("calls");
};

TEST_F(StudyLauncher, IsSrunWhereItHasPmix) {
  const ProgramResult result =
      run_in_slurm("printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n' >&2");
  ASSERT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.err.find("PMIx"), std::string::npos) << result.err;
  expect_started_by("srun --mpi=pmix");
}

TEST_F(StudyLauncher, IsMpirunWhereSrunHasNoPmixAndSaysSo) {
  for (const char* answer :
       {"printf 'MPI plugin types are...\\n\\tcray_shasta\\n\\tnone\\n\\tpmi2\\n' >&2", "exit 1"}) {
    const ProgramResult result = run_in_slurm(answer);
    ASSERT_EQ(result.exit_code, 0) << result.text();
    EXPECT_NE(result.err.find("srun has no PMIx (srun --mpi=list); mpirun starts the ranks\n"),
              std::string::npos)
        << result.err;
    expect_started_by("mpirun -n 1");
  }
}

}  // namespace
}  // namespace moesaic::test
