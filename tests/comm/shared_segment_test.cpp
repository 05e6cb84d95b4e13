#include "comm/shared_segment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "comm/thread_communicator.h"

namespace moesaic {
namespace {

using Home = SharedSegment::Home;

class Homes : public testing::TestWithParam<Home> {};

TEST_P(Homes, a_peer_sees_the_same_zeros_and_bytes) {
  const SharedSegment own = SharedSegment::create(GetParam(), 100000);
  const SharedSegment peer = SharedSegment::open(own.name());
  EXPECT_TRUE(SharedSegment::exists(own.name()));
  ASSERT_EQ(peer.bytes().size(), 100000u);
  EXPECT_NE(peer.bytes().data(), own.bytes().data());
  EXPECT_TRUE(std::ranges::all_of(peer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  own.bytes()[99999] = std::byte{42};
  EXPECT_EQ(peer.bytes()[99999], std::byte{42});
}

TEST_P(Homes, huge_pages_change_no_contents) {
  constexpr std::size_t kBytes = (std::size_t{9} << 20) + 5;
  const SharedSegment own = SharedSegment::create(GetParam(), kBytes);
  const SharedSegment peer = SharedSegment::open(own.name());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own.bytes().data()) % (2 << 20), 0U);
  for (std::size_t at = 0; at < kBytes; at += 1000) own.bytes()[at] = std::byte{7};
  for (const std::size_t first : {1, 0}) take_huge_pages(own.bytes(), {first, 2});
  take_huge_pages(peer.bytes());
  for (std::size_t at = 0; at < kBytes; ++at) {
    ASSERT_EQ(peer.bytes()[at], at % 1000 == 0 ? std::byte{7} : std::byte{0}) << at;
  }
}

TEST_P(Homes, who_has_it_keeps_it_after_unlink) {
  SharedSegment own = SharedSegment::create(GetParam(), 4096);
  const SharedSegment peer = SharedSegment::open(own.name());
  own.bytes()[7] = std::byte{1};
  own.unlink();
  EXPECT_THROW((void)SharedSegment::open(own.name()), Error);
  EXPECT_FALSE(SharedSegment::exists(own.name()));
  own = SharedSegment();
  EXPECT_EQ(peer.bytes()[7], std::byte{1});
}

TEST_P(Homes, another_file_is_not_taken_for_it) {
  const SharedSegment own = SharedSegment::create(GetParam(), 4096);
  SharedSegment::Name name = own.name();
  ++name.inode;
  EXPECT_THROW((void)SharedSegment::open(name), Error);
}

TEST_P(Homes, too_much_is_refused_before_it_is_touched) {
  try {
    (void)SharedSegment::create(GetParam(), std::numeric_limits<std::int64_t>::max() / 2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find("PiB needed"), std::string::npos) << error.what();
  }
}

TEST_P(Homes, ranks_share_one) {
  run_thread_ranks(3, [](Communicator& comm) {
    const SharedSegment segment = share_segment(comm, 64, GetParam());
    segment.bytes()[static_cast<std::size_t>(comm.rank())] = std::byte{9};
    comm.barrier();
    EXPECT_EQ(std::count(segment.bytes().begin(), segment.bytes().end(), std::byte{9}), 3);
    comm.barrier();
  });
}

TEST_P(Homes, a_failure_is_an_error_on_all_ranks) {
  run_thread_ranks(3, [](Communicator& comm) {
    EXPECT_THROW((void)share_segment(comm, std::int64_t{1} << 60, GetParam()), Error);
    EXPECT_THROW((void)allocate_shared_segment(comm, std::int64_t{1} << 60), Error);
    comm.barrier();
  });
}

TEST(SharedSegment, every_rank_knows_why_one_failed) {
  run_thread_ranks(3, [](Communicator& comm) {
    const std::string refusal = first_refusal(comm, [&] {
      require(comm.rank() == 0, ErrorKind::resource, "rank {} cannot", comm.rank());
    });
    EXPECT_EQ(refusal, "rank 1 cannot");
    EXPECT_EQ(first_refusal(comm, [] {}), "");
    try {
      (void)share_segment(comm, std::int64_t{1} << 60, Home::anonymous);  // rank 0 alone makes it
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("1024.0 PiB needed"), std::string::npos)
          << error.what();
    }
    comm.barrier();
  });
}

TEST(SharedSegment, both_reasons_are_told_if_neither_home_has_room) {
  run_thread_ranks(2, [](Communicator& comm) {
    try {
      (void)allocate_shared_segment(comm, std::int64_t{1} << 60);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      const std::size_t second = text.find("; then, in /dev/shm: ");
      ASSERT_NE(second, std::string::npos) << text;
      EXPECT_EQ(text.find("shared memory: "), 0U) << text;
      EXPECT_NE(text.find("shared memory: ", second), std::string::npos) << text;
    }
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Both, Homes, testing::Values(Home::anonymous, Home::dev_shm));

TEST(SharedSegment, leaves_no_file_behind) {
  const std::string prefix = "moesaic-" + std::to_string(getpid()) + "-";
  const auto num_files = [&] {
    const std::filesystem::directory_iterator files("/dev/shm");
    return std::ranges::count_if(files, [&](const auto& file) {
      return file.path().filename().string().starts_with(prefix);
    });
  };
  {
    const SharedSegment one = SharedSegment::create(Home::dev_shm, 4096);
    const SharedSegment two = SharedSegment::create(Home::dev_shm, 4096);
    EXPECT_EQ(num_files(), 2);
  }
  EXPECT_EQ(num_files(), 0);
}

}  // namespace
}  // namespace moesaic
