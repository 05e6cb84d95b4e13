// GPUs of several chips, GPUs that nobody uses, and scales of activations on GPUs, seen from
// outside.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/checkpoint/checkpoint.h"
#include "tests/launch/fake_gpus.h"
#include "tests/support/quantized_checkpoint.h"

namespace moesaic::test {
namespace {

class GpuChips : public FakeGpus {
 protected:
  /// One job, the GPU of rank 1 being of sm_90.
  static Arguments two_ranks(const std::string& first_chip, const Arguments& arguments) {
    Arguments command = {MOESAIC_MPIRUN, "-n", "1", "-x", "MOESAIC_FAKE_CHIP=" + first_chip,
                         MOESAIC_PROGRAM};
    command = joined(joined(command, arguments), {":", "-n", "1", MOESAIC_PROGRAM});
    return joined(command, arguments);
  }
};

TEST_F(GpuChips, that_sum_differently_are_refused) {
  const Arguments native = {"--expert-format", "nvfp4", "--gpu-experts", "all"};
  expect_failure(
      run_program(two_ranks("86", score(native)), on_fake_gpus()), 2,
      {"the GPUs of rank 0 (sm_86) and rank 1 (sm_90) sum differently; the same bits on both: "
       "mpirun -n 2 moesaic score ... --numerics portable\n"});
}

TEST_F(GpuChips, share_a_job_where_their_bits_are_the_same) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  EXPECT_TRUE(run(two_ranks("86", score(portable("nvfp4", "all")))).logits == cpu);
  const Arguments native = {"--isa", "scalar", "--expert-format", "nvfp4", "--gpu-experts", "all"};
  const std::string alone = run_score(1, native).logits;
  EXPECT_TRUE(run(two_ranks("100", score(native))).logits == alone);
}

TEST_F(GpuChips, that_are_too_old_leave_experts_on_the_cpu) {
  const std::string why = "GPU 0 (PTX machine) is sm_75: kernels are made for sm_80 and later";
  const Arguments all = portable("nvfp4", "all");
  expect_failure(
      run_program(moesaic_command(score(all)), on_fake_gpus({{"MOESAIC_FAKE_CHIP", "75"}})), 4,
      {"there is no GPU: " + why});
  const Run beside = run(two_ranks("75", score(all)));
  EXPECT_NE(beside.told.find("): " + why), std::string::npos) << beside.told;
  EXPECT_TRUE(beside.logits == run_score(1, portable("nvfp4", "none")).logits);
}

TEST_F(GpuChips, may_be_later_than_this_program) {
  const Variables later = on_fake_gpus({{"MOESAIC_FAKE_CHIP", "130"}});
  const Arguments native = {"--isa", "scalar", "--expert-format", "nvfp4", "--gpu-experts", "4"};
  const Run unknown = run(moesaic_command(score(native)), later);
  EXPECT_TRUE(has_line(unknown.told, "on GPU 0 \\(PTX machine, sm_130, mma, ")) << unknown.told;
  EXPECT_TRUE(unknown.logits == run_score(1, native).logits);
  expect_failure(
      run_program(moesaic_command(score(joined(native, {"--nvfp4-activations", "nvfp4"}))), later),
      2,
      {"GPU 0 (PTX machine, sm_130) does not multiply activations in nvfp4, sm_120 and sm_121 do"});
}

using UnusedGpus = FakeGpus;

TEST_F(UnusedGpus, are_mentioned_once) {
  const Variables three = on_fake_gpus({{"MOESAIC_FAKE_GPUS", "3"}});
  const auto told = [&](int ranks, const Variables& gpus) {
    return run(ranks_command(ranks, score(portable("nvfp4", "all"))), gpus).told;
  };
  const auto mentions = [](const std::string& text) {
    return std::ranges::count_if(lines_of(text), [](const std::string& line) {
      return line.find("not used") != std::string::npos;
    });
  };
  const std::string two_of_three = told(2, three);
  EXPECT_TRUE(has_line(two_of_three, "note: 1 of the 3 GPUs of this node are not used"))
      << two_of_three;
  EXPECT_EQ(mentions(two_of_three), 1) << two_of_three;
  EXPECT_EQ(mentions(told(3, three)), 0);
}

TEST_F(UnusedGpus, are_mentioned_once_where_no_experts_go_there) {
  // A system of one GPU, as NVIDIA's kernel module tells of it.
  const std::string system =
      "mount -t tmpfs none /proc/driver && mkdir -p /proc/driver/nvidia/gpus/0000:01:00.0 && ";
  const auto in_system = [&](const std::string& command) {
    return Arguments{"unshare", "--user", "--map-root-user", "--mount",
                     "sh",      "-c",     system + command,  "sh"};
  };
  if (run_program(in_system("true")).exit_code != 0) GTEST_SKIP() << "no namespaces here";
  const auto told = [&](const std::string& visible) {
    return run(joined(in_system(visible + " exec \"$@\""), ranks_command(2, score({})))).told;
  };
  const std::string note = "note: there is a GPU here: --gpu-experts uses it\n";
  const std::string text = told("unset CUDA_VISIBLE_DEVICES;");
  EXPECT_NE(text.find(note), std::string::npos) << text;
  EXPECT_EQ(text.find(note), text.rfind(note)) << text;
  const std::string hidden = told("CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(hidden.find(note), std::string::npos) << hidden;
}

/// With the memory of a GPU that has no room for one expert of each layer.
TEST_F(UnusedGpus, of_auto_say_why) {
  const auto small = [](const std::string& bytes) {
    return on_fake_gpus({{"MOESAIC_FAKE_BYTES", bytes}});
  };
  const Arguments automatic = joined(portable("nvfp4", "auto"), {"--batch-size", "8"});
  const Run none = run(ranks_command(1, score(automatic)), small("60000"));
  EXPECT_TRUE(has_line(none.told,
                       "warning: rank 0: 0 of 16 experts a layer on GPU 0 \\(.*\\), 16 on CPU "
                       "\\(.*\\): one of each layer would take [0-9.]+ KiB with rows, "
                       "[0-9.]+ KiB are available \\(--gpu-memory 90\\)\n"))
      << none.told;
  EXPECT_TRUE(none.logits == run_score(1, portable("nvfp4", "none")).logits);
  const Run some = run(ranks_command(1, score(automatic)), small("1000000"));
  EXPECT_FALSE(has_line(some.told, "would take")) << some.told;
}

/// The demo model with experts in nvfp4, one scale of activations for all of them, or none (0).
void write_with_scales(const std::string& model, float scale) {
  quantize_checkpoint(kDemo, {.format = Format::nvfp4}, is_expert_weight, model);
  if (scale == 0) return;
  std::map<std::string, float> scales;
  const Checkpoint checkpoint = Checkpoint::open(model);
  for (const TensorView* const tensor : checkpoint.tensors()) {
    if (!tensor->name.ends_with("_scale_2")) continue;
    scales[tensor->name.substr(0, tensor->name.rfind(".weight")) + ".input_scale"] = scale;
  }
  add_scalars(model, scales);
}

/// They count with --activation-scales checkpoint, and there alone.
class GpuActivationScales : public FakeGpus {
 protected:
  GpuActivationScales() {
    write_with_scales(with_, 0.001F);
    write_with_scales(without_, 0);
  }
  [[nodiscard]] std::string logits(const std::string& model, const Arguments& more,
                                   const std::string& chip) {
    return run(moesaic_command(score(joined({"-m", model, "--isa", "scalar"}, more))),
               on_fake_gpus({{"MOESAIC_FAKE_CHIP", chip}}))
        .logits;
  }
  void check(const Arguments& numerics, const std::string& chip) {
    const Arguments rounded = joined({"--nvfp4-activations", "nvfp4"}, numerics);
    const Arguments all = joined({"--gpu-experts", "all"}, rounded);
    const std::string of_tokens = logits(with_, all, chip);
    EXPECT_TRUE(of_tokens == logits(without_, all, chip)) << "not asked for";
    const Arguments of_checkpoint = {"--activation-scales", "checkpoint"};
    EXPECT_FALSE(of_tokens == logits(with_, joined(all, of_checkpoint), chip)) << "asked for";
    const Arguments plain = joined({"--gpu-experts", "all"}, numerics);
    EXPECT_TRUE(logits(with_, plain, chip) == logits(without_, plain, chip)) << "bf16";
  }

  TemporaryDirectory directory_;
  std::string with_ = directory_.path_of("with");
  std::string without_ = directory_.path_of("without");
};

TEST_F(GpuActivationScales, of_a_checkpoint_give_the_bytes_of_the_cpu) {
  const auto with = [&](const std::string& experts) {
    return logits(with_,
                  {"--numerics", "portable", "--nvfp4-activations", "nvfp4", "--activation-scales",
                   "checkpoint", "--gpu-experts", experts},
                  "90");
  };
  EXPECT_TRUE(with("9") == with("none"));
}

TEST_F(GpuActivationScales, of_a_checkpoint_count_where_they_are_asked_for) {
  check({"--numerics", "portable"}, "90");
  check({"--numerics", "native"}, "120");
}

TEST_F(GpuActivationScales, that_are_missing_are_named) {
  expect_failure(
      run_program(moesaic_command(score({"-m", without_, "--numerics", "portable",
                                         "--nvfp4-activations", "nvfp4", "--activation-scales",
                                         "checkpoint", "--gpu-experts", "all"})),
                  on_fake_gpus()),
      3, {"expert 0 of layer 0", "no tensor", "experts.0.gate_proj.input_scale"});
}

}  // namespace
}  // namespace moesaic::test
