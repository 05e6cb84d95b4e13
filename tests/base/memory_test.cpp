#include "base/memory.h"

#include <gtest/gtest.h>

#include "tests/base/fake_root.h"

namespace moesaic {
namespace {

class FakeRoot : public test::FakeRoot {
 public:
  FakeRoot() { write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:     8192 kB\n"); }
};

TEST(MemoryLimit, without_cgroups_the_kernel_decides) {
  const FakeRoot root;
  EXPECT_EQ(memory_limit(root.path()).available_bytes, 8192 * 1024);
  EXPECT_EQ(memory_limit(root.path()).source, "MemAvailable");
}

TEST(MemoryLimit, an_ancestor_may_be_the_tightest) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/a/memory.current", "400000\n");
  root.write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100\nactive_file 20\n");
  const MemoryLimit limit = memory_limit(root.path());
  EXPECT_EQ(limit.available_bytes, 600120);
  EXPECT_NE(limit.source.find("a/memory.max"), std::string::npos);
}

TEST(MemoryLimit, reads_version_1_hierarchies) {
  const FakeRoot root;
  root.write("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "9000\n");
  EXPECT_EQ(memory_limit(root.path()).available_bytes, 0);
  root.write("sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 10\nactive_file 20\ntotal_inactive_file 6000\ntotal_active_file 500\n");
  EXPECT_EQ(memory_limit(root.path()).available_bytes, 2500) << "usage is that of the whole tree";
}

TEST(Memory, formats_bytes) {
  EXPECT_EQ(format_bytes(312), "312 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{20} << 30), "20.0 GiB");
  EXPECT_GT(peak_resident_bytes(), 0);
  const ResidentBytes bytes = resident_bytes();
  EXPECT_GT(bytes.file, 0);
  EXPECT_GE(bytes.peak, bytes.anonymous + bytes.file + bytes.shared - (1 << 20));
}

}  // namespace
}  // namespace moesaic
