#include "launch/bench/bench_attention.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "kernels/kernel_table.h"
#include "launch/bench/attention_bed.h"
#include "launch/bench/attention_gradient_bed.h"
#include "launch/bench/bench_memory.h"
#include "launch/bench/bench_team.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/result_printer.h"
#include "launch/options/choices.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {
namespace {

/// One line of the table, before its last roofs are known.
struct Measurement {
  ProductOp op;
  AttentionForm form;
  std::int64_t keys;
  const AttentionKernel* kernel;
  std::int64_t rows = 0;
  const Team* team = nullptr;
  double operations = 0;
  double bytes = 0;
  double seconds = 0;
  double error = 0;
};

/// A cache is filled, and roofs measured, before and after.
constexpr double kSecondsOfGroup = 0.5;
/// The last run ends late, the first does not count, and results are compared.
constexpr double kRunsOfLine = 1.25;

Format format_of(AttentionKind kind) {
  return kind == AttentionKind::bf16 ? Format::bf16 : Format::f32;
}

/// Of --formats, those that a cache can have.
std::vector<AttentionKind> kinds_of(const Options& options) {
  std::vector<AttentionKind> kinds;
  for (const Layout& layout : parse_formats(options.formats)) {
    if (layout.format == Format::bf16) kinds.push_back(AttentionKind::bf16);
    if (layout.format == Format::f32) kinds.push_back(AttentionKind::f32);
  }
  require(!kinds.empty(), ErrorKind::usage,
          "--op {} has a cache in bf16 or f32, and --formats names neither",
          choice_name(options.op));
  return kinds;
}

ResultLine make_line(const Measurement& measured) {
  const AttentionKernel& kernel = *measured.kernel;
  const RoofGauge& gauge = measured.team->gauge;
  const MultiplyLoop& loop = find_multiply_loop(kernel.isa, format_of(kernel.kind));
  const double compute = measured.operations / gauge.operations_per_second(loop);
  const double memory = measured.bytes / gauge.bytes_per_second();
  return {{"op", std::string(choice_name(measured.op)), true},
          {"shape", measured.form.name(), true},
          {"keys", fmt::format("{}", measured.keys)},
          {"rows", fmt::format("{}", measured.rows)},
          {"format", kernel.kind == AttentionKind::bf16 ? "bf16" : "f32", true},
          {"isa", std::string(isa_name(kernel.isa)), true},
          {"threads", fmt::format("{}", measured.team->pool.size())},
          {"us", short_number(measured.seconds * 1e6)},
          {"gops", short_number(measured.operations / measured.seconds / 1e9)},
          {"read_gbs", short_number(measured.bytes / measured.seconds / 1e9)},
          {"roof", compute > memory ? "compute" : "memory", true},
          {"roof_share", short_number(std::max(compute, memory) / measured.seconds)},
          {"error", fmt::format("{:.2e}", measured.error)}};
}

class AttentionBench {
 public:
  explicit AttentionBench(const Runtime& runtime)
      : runtime_(&runtime),
        forms_(parse_attention_shapes(runtime.options().shapes)),
        kinds_(kinds_of(runtime.options())) {
    const Options& options = runtime.options();
    const std::int64_t rows = *std::ranges::max_element(options.rows);
    const std::int64_t keys = *std::ranges::min_element(options.keys);
    require(options.op == ProductOp::attention_backward || rows <= keys, ErrorKind::usage,
            "--rows: {} are more than the {} of --keys: rows are the last of the positions", rows,
            keys);
    require(options.rival == Rival::none, ErrorKind::usage, "--rival has no --op {}",
            choice_name(options.op));
    require_room();
    memory_ = Buffer<std::byte>(cold_bytes(runtime));
    teams_ = make_teams(runtime, memory_.span());
    printer_.emplace(runtime, amount());
  }

  void run() {
    for (const AttentionForm& form : forms_) {
      for (const AttentionKind kind : kinds_) {
        for (const std::int64_t keys : runtime_->options().keys) {
          const std::unique_ptr<MeasuredAttention> bed = make_bed(form, kind, keys);
          for (const AttentionKernel* kernel : kernels(kind)) {
            measure(*bed,
                    {.op = runtime_->options().op, .form = form, .keys = keys, .kernel = kernel});
          }
        }
      }
    }
  }

  void end() {
    printer_->end();
    log_roofs(*runtime_, teams_);
  }

 private:
  void require_room() const {
    std::int64_t bytes = 0;
    for (const AttentionForm& form : forms_) {
      for (const AttentionKind kind : kinds_) {
        for (const std::int64_t keys : runtime_->options().keys) {
          bytes = std::max(bytes, AttentionBed::copy_bytes(form, kind, keys));
        }
      }
    }
    require_cold_bytes(*runtime_, bytes, "keys and values");
  }

  [[nodiscard]] BenchAmount amount() const {
    std::int64_t kernel_count = 0;
    for (const AttentionKind kind : kinds_) kernel_count += std::ssize(kernels(kind));
    const Options& options = runtime_->options();
    const std::int64_t groups =
        std::ssize(forms_) * kernel_count * std::ssize(options.keys) * std::ssize(teams_);
    return {.lines = groups * std::ssize(options.rows),
            .seconds_of_line = kRunsOfLine * options.seconds,
            .groups = groups,
            .seconds_of_group = kSecondsOfGroup};
  }

  [[nodiscard]] std::vector<const AttentionKernel*> kernels(AttentionKind kind) const {
    if (!runtime_->options().isa.all) {
      return {&find_attention_kernel(runtime_->compute().isa, kind)};
    }
    std::vector<const AttentionKernel*> kernels;
    for (const AttentionKernel* kernel : all_attention_kernels()) {
      if (kernel->kind == kind && is_supported(kernel->isa)) kernels.push_back(kernel);
    }
    return kernels;
  }

  [[nodiscard]] std::unique_ptr<MeasuredAttention> make_bed(const AttentionForm& form,
                                                            AttentionKind kind,
                                                            std::int64_t keys) const {
    if (runtime_->options().op == ProductOp::attention_backward) {
      return std::make_unique<AttentionGradientBed>(form, keys);
    }
    return std::make_unique<AttentionBed>(form, kind, keys, memory_.span());
  }

  /// `line` says what is measured.
  void measure(MeasuredAttention& bed, Measurement line) {
    const AttentionKernel& kernel = *line.kernel;
    const MultiplyLoop& loop = find_multiply_loop(kernel.isa, format_of(kernel.kind));
    const std::vector<std::int64_t>& row_counts = runtime_->options().rows;
    for (const auto& team : teams_) {
      runtime_->leave_if_stop_wanted();
      std::vector<Measurement> all;
      team->measure_roofs(loop);
      for (const std::int64_t rows : row_counts) {
        if (runtime_->stop_wanted()) break;
        const std::vector<double> seconds = repeat(runtime_->options().seconds, [&] {
          return time_once([&] { bed.run(kernel, rows, team->pool); });
        });
        line.rows = rows;
        line.team = team.get();
        line.operations = bed.operations(rows);
        line.bytes = bed.bytes(rows);
        line.seconds = lower_quartile(seconds);
        line.error = bed.error();
        all.push_back(line);
      }
      team->measure_roofs(loop);
      std::vector<ResultLine> lines;
      for (const Measurement& measured : all) lines.push_back(make_line(measured));
      printer_->add(lines);
      if (all.size() < row_counts.size()) runtime_->leave_if_stop_wanted();
    }
  }

  const Runtime* runtime_;
  std::vector<AttentionForm> forms_;
  std::vector<AttentionKind> kinds_;
  Buffer<std::byte> memory_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::optional<ResultPrinter> printer_;
};

}  // namespace

void run_bench_attention(Runtime& runtime) {
  AttentionBench bench(runtime);
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  bench.end();
}

}  // namespace moesaic
