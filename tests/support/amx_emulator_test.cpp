#include "tests/support/amx_emulator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/amx_assembly.h"

// Tile state, addresses, threads and faults. On a CPU with AMX the same tests look at the hardware.

namespace moesaic::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 engine(seed);
  Bytes bytes(size);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(engine()); });
  return bytes;
}

TileConfiguration all_tiles(std::size_t rows, std::size_t row_bytes) {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) configuration.set(tile, rows, row_bytes);
  return configuration;
}

class AmxEmulator : public testing::Test {
 protected:
  AmxEmulator() { install_amx_emulator(); }
  ~AmxEmulator() override { release_tiles(); }
};

TEST_F(AmxEmulator, stores_the_configuration_that_was_loaded) {
  TileConfiguration configuration;
  configuration.set(0, 16, 64);
  configuration.set(3, 1, 4);
  configuration.set(7, 9, 36);
  configure_tiles(configuration);
  const TileConfiguration stored = stored_configuration();
  EXPECT_EQ(std::memcmp(&stored, &configuration, 64), 0);
}

TEST_F(AmxEmulator, stores_zeros_where_nothing_is_configured) {
  const std::uint8_t zeros[64] = {};
  TileConfiguration palette_0 = all_tiles(16, 64);
  palette_0.palette = 0;
  configure_tiles(all_tiles(16, 64));
  configure_tiles(palette_0);
  TileConfiguration stored = stored_configuration();
  EXPECT_EQ(std::memcmp(&stored, zeros, 64), 0);
  configure_tiles(all_tiles(16, 64));
  release_tiles();
  stored = stored_configuration();
  EXPECT_EQ(std::memcmp(&stored, zeros, 64), 0);
}

// The operand of an object of static storage duration is addressed relative to rip.
constinit TileConfiguration static_configuration;

TEST_F(AmxEmulator, configures_from_any_kind_of_address) {
  static_configuration.set(2, 3, 8);
  configure_tiles(static_configuration);
  EXPECT_EQ(stored_configuration().rows[2], 3);
  const std::vector<TileConfiguration> several = {all_tiles(1, 4), all_tiles(2, 8)};
  asm volatile("ldtilecfg 64(%0)" ::"r"(several.data()) : "memory");
  EXPECT_EQ(stored_configuration().rows[7], 2);
  asm volatile("ldtilecfg (%0,%1,8)" ::"r"(several.data()), "r"(0L) : "memory");
  EXPECT_EQ(stored_configuration().rows[7], 1);
}

TEST_F(AmxEmulator, configuring_and_zeroing_clear_tiles) {
  const Bytes bytes = random_bytes(1024, 1);
  const Bytes zeros(1024);
  Bytes stored = bytes;
  configure_tiles(all_tiles(16, 64));
  load_tile<3>(bytes.data(), 64);
  load_tile<4>(bytes.data(), 64);
  zero_tile<3>();
  store_tile<3>(stored.data(), 64);
  EXPECT_EQ(stored, zeros);
  store_tile<4>(stored.data(), 64);
  EXPECT_EQ(stored, bytes);
  configure_tiles(all_tiles(16, 64));
  store_tile<4>(stored.data(), 64);
  EXPECT_EQ(stored, zeros);
}

TEST_F(AmxEmulator, moves_nothing_outside_the_shape) {
  const Bytes source = random_bytes(std::size_t{5} * 100, 2);
  Bytes target(std::size_t{5} * 80, 0xee);
  configure_tiles(all_tiles(5, 12));
  load_tile<7>(source.data(), 100);
  store_tile<7>(target.data(), 80);
  for (std::size_t i = 0; i < target.size(); ++i) {
    const std::uint8_t expected = i % 80 < 12 ? source[i / 80 * 100 + i % 80] : 0xee;
    ASSERT_EQ(target[i], expected) << "row " << i / 80 << ", byte " << i % 80;
  }
}

// A load through these registers and this operand; the row address and the stride come first.
#define LOAD_THROUGH(base, index, operand)                                                   \
  [](const std::uint8_t* row, std::ptrdiff_t stride) {                                       \
    asm volatile("mov %0, %%" base "\n mov %1, %%" index "\n" operand ", %%tmm0" ::"r"(row), \
                 "r"(stride)                                                                 \
                 : base, index, "memory");                                                   \
  }

TEST_F(AmxEmulator, finds_rows_through_any_registers_and_displacements) {
  struct Form {
    const char* name;
    void (*load)(const std::uint8_t* row, std::ptrdiff_t stride);
    std::ptrdiff_t stride, scale, displacement;
  };
  const Form forms[] = {
      {"no index", LOAD_THROUGH("rsi", "rax", "tileloadd (%%rsi)"), 64, 0, 0},
      {"low", LOAD_THROUGH("rax", "rcx", "tileloadd (%%rax,%%rcx,1)"), 64, 1, 0},
      {"hint", LOAD_THROUGH("rbx", "rdi", "tileloaddt1 (%%rbx,%%rdi,1)"), 100, 1, 0},
      {"r12 as index", LOAD_THROUGH("rdx", "r12", "tileloadd (%%rdx,%%r12,2)"), 64, 2, 0},
      {"r13 as base", LOAD_THROUGH("r13", "r8", "tileloadd (%%r13,%%r8,4)"), 20, 4, 0},
      {"r12 as base", LOAD_THROUGH("r12", "r15", "tileloadd (%%r12,%%r15,8)"), 11, 8, 0},
      {"short", LOAD_THROUGH("r9", "r10", "tileloadd -128(%%r9,%%r10,1)"), 64, 1, -128},
      {"long", LOAD_THROUGH("r11", "r14", "tileloadd 1000(%%r11,%%r14,1)"), 64, 1, 1000},
      {"long before", LOAD_THROUGH("rdi", "rsi", "tileloadd -1000(%%rdi,%%rsi,1)"), 64, 1, -1000},
      {"backwards", LOAD_THROUGH("rax", "rcx", "tileloadd (%%rax,%%rcx,2)"), -96, 2, 0},
  };
  const Bytes memory = random_bytes(8192, 3);
  const std::uint8_t* middle = memory.data() + 4096;
  configure_tiles(all_tiles(16, 64));
  for (const Form& form : forms) {
    zero_tile<0>();
    form.load(middle, form.stride);
    Bytes stored(1024);
    store_tile<0>(stored.data(), 64);
    for (std::ptrdiff_t row = 0; row < 16; ++row) {
      const std::uint8_t* expected = middle + form.displacement + row * form.stride * form.scale;
      ASSERT_EQ(std::memcmp(&stored[static_cast<std::size_t>(row) * 64], expected, 64), 0)
          << form.name << ", row " << row;
    }
  }
}

TEST_F(AmxEmulator, every_thread_has_tiles_of_its_own) {
  std::vector<std::thread> threads;
  std::vector<int> mistakes(4);
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t, &mistakes] {
      install_amx_emulator();
      const std::size_t rows = 4 * t + 1;
      const Bytes bytes = random_bytes(rows * 32, t);
      Bytes stored(bytes.size());
      configure_tiles(all_tiles(rows, 32));
      load_tile<1>(bytes.data(), 32);
      for (int round = 0; round < 200; ++round) {
        store_tile<1>(stored.data(), 32);
        if (stored != bytes) ++mistakes[t];
        load_tile<1>(stored.data(), 32);
      }
      release_tiles();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mistakes, std::vector<int>(4));
}

// --- faults ---

struct Fault {
  const char* reason;  // that the emulator gives
  void (*cause)();
};

/// Loads a configuration of 16 x 64 tiles after a change.
template <typename Change>
void configure_after(Change change) {
  TileConfiguration configuration = all_tiles(16, 64);
  change(configuration);
  configure_tiles(configuration);
}

void multiply() {
  asm volatile("tdpbssd %%tmm2, %%tmm1, %%tmm0" ::: "memory");
}

using Configuration = TileConfiguration;
const Fault kFaults[] = {
    {"palette does not exist", [] { configure_after([](Configuration& c) { c.palette = 2; }); }},
    {"reserved bytes", [] { configure_after([](Configuration& c) { c.reserved[13] = 1; }); }},
    {"reserved bytes", [] { configure_after([](Configuration& c) { c.row_bytes[8] = 64; }); }},
    {"reserved bytes", [] { configure_after([](Configuration& c) { c.rows[15] = 16; }); }},
    {"more than 16 rows", [] { configure_after([](Configuration& c) { c.rows[7] = 17; }); }},
    {"more than 64 bytes", [] { configure_after([](Configuration& c) { c.row_bytes[0] = 68; }); }},
    {"rows without bytes", [] { configure_after([](Configuration& c) { c.row_bytes[4] = 0; }); }},
    {"bytes without rows", [] { configure_after([](Configuration& c) { c.rows[4] = 0; }); }},
    {"not configured", [] { zero_tile<0>(); }},
    {"not configured", multiply},
    {"leaves empty",
     [] {
       configure_after([](Configuration& c) { c.set(5, 0, 0); });
       zero_tile<5>();
     }},
    {"multiple of 4 bytes",
     [] {
       configure_after([](Configuration& c) { c.set(2, 16, 62); });
       const Bytes bytes(1024);
       load_tile<2>(bytes.data(), 64);
     }},
    // tdpbf16ps with C = A, C = B and A = B, which an assembler refuses.
    {"not different",
     [] {
       configure_tiles(all_tiles(16, 64));
       asm volatile(".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc0" ::: "memory");
     }},
    {"not different",
     [] {
       configure_tiles(all_tiles(16, 64));
       asm volatile(".byte 0xc4, 0xe2, 0x7a, 0x5c, 0xc1" ::: "memory");
     }},
    {"not different",
     [] {
       configure_tiles(all_tiles(16, 64));
       asm volatile(".byte 0xc4, 0xe2, 0x62, 0x5c, 0xc3" ::: "memory");
     }},
    {"same number of rows",
     [] {
       configure_after([](Configuration& c) { c.set(1, 15, 64); });
       multiply();
     }},
    {"same number of columns",
     [] {
       configure_after([](Configuration& c) { c.set(2, 16, 60); });
       multiply();
     }},
    {"each 4 bytes",
     [] {
       configure_after([](Configuration& c) { c.set(1, 16, 60); });
       multiply();
     }},
};

class AmxEmulatorDeathTest : public AmxEmulator {};

TEST_F(AmxEmulatorDeathTest, dies_where_hardware_faults) {
  for (const Fault& fault : kFaults) {
    EXPECT_DEATH(fault.cause(), cpu_has_amx() ? "" : fault.reason) << fault.reason;
  }
}

TEST_F(AmxEmulatorDeathTest, names_the_instruction_and_the_shapes) {
  if (cpu_has_amx()) GTEST_SKIP() << "hardware gives no reasons";
  EXPECT_EXIT(
      {
        configure_after([](TileConfiguration& c) { c.set(1, 15, 64); });
        multiply();
      },
      testing::KilledBySignal(SIGILL),
      "AMX emulator: tdpbssd .tile 0 .= 1 . 2. at 0x.*same number of rows.*16x64 15x64 16x64");
}

TEST_F(AmxEmulatorDeathTest, releasing_ends_the_configuration) {
  EXPECT_EXIT(
      {
        configure_tiles(all_tiles(16, 64));
        release_tiles();
        zero_tile<0>();
      },
      testing::KilledBySignal(SIGILL), cpu_has_amx() ? "" : "not configured");
}

TEST_F(AmxEmulatorDeathTest, does_not_resume_loads_in_the_middle) {
  if (cpu_has_amx()) GTEST_SKIP() << "hardware does";
  EXPECT_DEATH(configure_after([](TileConfiguration& c) { c.start_row = 1; }), "not emulated");
}

TEST_F(AmxEmulatorDeathTest, other_illegal_instructions_still_kill) {
  install_amx_emulator();  // twice: it must not become its own predecessor
  EXPECT_EXIT(asm volatile("ud2"), testing::KilledBySignal(SIGILL),
              cpu_has_amx() ? "" : "not one of AMX: 0f 0b");
  EXPECT_EXIT(raise(SIGILL), testing::KilledBySignal(SIGILL), "");
}

// In a process of its own, since the emulator is installed behind another handler only once.
TEST(AmxEmulatorPredecessorDeathTest, gets_other_illegal_instructions) {
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        struct sigaction action = {};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = [](int, siginfo_t*, void* context) {
          static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;
        };
        sigaction(SIGILL, &action, nullptr);
        install_amx_emulator();
        configure_tiles(all_tiles(3, 4));
        asm volatile("ud2");
        _exit(stored_configuration().rows[0]);
      },
      testing::ExitedWithCode(3), "");
  GTEST_FLAG_SET(death_test_style, style);
}

}  // namespace
}  // namespace moesaic::test
