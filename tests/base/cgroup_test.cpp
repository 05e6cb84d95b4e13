#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "tests/base/fake_root.h"

namespace moesaic {
namespace {

TEST(CpuQuota, is_absent_without_groups_or_limits) {
  const test::FakeRoot root;
  EXPECT_EQ(cpu_quota(root.path()).cores, 0);
  root.write("proc/self/cgroup", "0::/job\n");
  EXPECT_EQ(cpu_quota(root.path()).cores, 0);
  root.write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root.path()).cores, 0);
}

TEST(CpuQuota, an_ancestor_may_be_the_tightest) {
  const test::FakeRoot root;
  root.write("proc/self/cgroup", "0::/job/step\n");
  root.write("sys/fs/cgroup/job/step/cpu.max", "400000 100000\n");
  root.write("sys/fs/cgroup/job/cpu.max", "125000 50000\n");
  const CpuQuota quota = cpu_quota(root.path());
  EXPECT_EQ(quota.cores, 2.5);
  EXPECT_NE(quota.source.find("job/cpu.max"), std::string::npos) << quota.source;
}

TEST(CpuQuota, of_a_container_stands_at_the_root_of_what_it_sees) {
  const test::FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()).cores, 1.5);
}

TEST(CpuQuota, is_read_from_version_1_hierarchies) {
  const test::FakeRoot joint;
  joint.write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/job\n0::/elsewhere\n");
  joint.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  joint.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  joint.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  joint.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(joint.path()).cores, 3);
  const test::FakeRoot alone;
  alone.write("proc/self/cgroup", "4:cpu,cpuacct:/job\n");
  alone.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  alone.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(alone.path()).cores, 0.5);
}

TEST(CpuQuota, nonsense_is_no_quota) {
  const test::FakeRoot root;
  root.write("proc/self/cgroup", "broken\n0::/../..\n");
  root.write("sys/fs/cgroup/cpu.max", "0 0\n");
  EXPECT_EQ(cpu_quota(root.path()).cores, 0);
}

}  // namespace
}  // namespace moesaic
