#pragma once

#include "src/parallel/machine_rates.h"

namespace moesaic::test {

/// A node of round numbers: four cores, three formats, a GPU a rank.
inline MachineRates test_machine() {
  const ProductCurve curve{
      .rows = {1, 16, 64},
      .seconds_per_weight = {1e-12, 1e-12, 4e-12},
      .cached_seconds_per_weight = {.sizes = {1, 16}, .values = {0.25e-12, 0.5e-12}},
      .column_seconds = 1e-9,
      .pack_f32_seconds = 4e-10,
      .pack_bf16_seconds = 2e-10,
      .result_seconds = 5e-10,
      .streamed_result_seconds = 1e-9};
  MachineRates machine{
      .path = "machine.json",
      .measured = "in a test",
      .cpu = "a CPU",
      .isa = "amx",
      .cores = 4,
      .products = {{Format::bf16, curve}, {Format::int8, curve}, {Format::f32, curve}},
      .attention_flops_per_second = {.sizes = {64, 128}, .values = {0.5e12, 1e12}},
      .read_bytes_per_second = {.sizes = {1e6, 1e9}, .values = {4e11, 1e11}},
      .row_ops = {},
      .routing = {.score_seconds = 1e-9, .choice_seconds = 2e-9, .plan_seconds = 3e-9},
      .calls = {.job_seconds = 1e-6, .product_seconds = 2e-6, .group_seconds = 3e-6},
      .barrier_seconds = 1e-6,
      .inside = LinkRates{1e-6, 5e9, 1e10},
      .between = LinkRates{1e-5, 1e9, 2e9},
      .gpu = GpuRates{.name = "a GPU, sm_90",
                      .read_bytes_per_second = 1e12,
                      .flops_per_second = {{"mma", 4e14}, {"portable", 1e13}},
                      .upload_bytes_per_second = 2e10,
                      .download_bytes_per_second = 1e10,
                      .call_seconds = 2e-6,
                      .wait_seconds = 1e-5},
      .rank_bytes = 4 << 20,
      .node_bytes = 18 << 20};
  for (std::size_t op = 0; op < kNumRowOps; ++op) {
    const auto number = static_cast<double>(op + 1);
    machine.row_ops[op] = {.sizes = {1e4, 1e6}, .values = {number * 1e-10, number * 3e-10}};
  }
  return machine;
}

}  // namespace moesaic::test
