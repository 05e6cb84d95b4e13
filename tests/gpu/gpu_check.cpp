// Kernels on a GPU that is there: their bytes against what software says, or how fast they are. A
// program of its own, without MPI, that can be taken to such a machine (tests/gpu/run.sh --pack).
//
// usage: gpu_check [check|bench] [--only TEXT] [--driver LIBRARY] [--nccl LIBRARY]
//                  [--cutlass LIBRARY] [--report PREFIX]
//   TEXT: only kernels of MLPs with it in their name, "mma/nvfp4". PREFIX.json and PREFIX.md are
//   written. Exit codes: 0 all is as it should be; 1 a mismatch; 2 usage; 4 no GPU, or an error of
//   one.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <bit>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "kernels/cuda/device_roofs.h"
#include "tests/gpu/device_case.h"
#include "tests/gpu/grouped_shapes.h"
#include "tests/gpu/kernel_times.h"
#include "tests/gpu/plan_checks.h"
#include "tests/gpu/row_checks.h"

namespace moesaic {
namespace {

constexpr int kExitMismatch = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoGpu = 4;
constexpr std::size_t kMostShown = 8;  // mismatches of a case
constexpr double kRoofSeconds = 60;    // until a GPU counts as lost

struct Arguments {
  bool bench = false;
  std::string only{};
  std::string driver = "libcuda.so.1";
  std::string nccl = "libnccl.so.2";
  std::string cutlass = GroupedLibrary::usual_file();
  std::string report = "gpu-report";
};

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "check" || words[i] == "bench") {
      arguments.bench = words[i] == "bench";
    } else if (words[i] == "--only" && has_value) {
      arguments.only = words[++i];
    } else if (words[i] == "--driver" && has_value) {
      arguments.driver = words[++i];
    } else if (words[i] == "--nccl" && has_value) {
      arguments.nccl = words[++i];
    } else if (words[i] == "--cutlass" && has_value) {
      arguments.cutlass = words[++i];
    } else if (words[i] == "--report" && has_value) {
      arguments.report = words[++i];
    } else {
      fail(ErrorKind::usage,
           "gpu_check [check|bench] [--only TEXT] [--driver LIBRARY] [--nccl LIBRARY] "
           "[--cutlass LIBRARY] [--report PREFIX], not {}",
           words[i]);
    }
  }
  return arguments;
}

/// What was found, as JSON and as text.
struct Report {
  std::vector<std::string> lines{};     // JSON objects
  std::vector<std::string> markdown{};  // rows of a table
  std::string header{};
  std::string nccl{};  // its version, or why there is none
  std::int64_t mismatches = 0;
};

std::string shape_text(const DeviceCase::Shape& shape) {
  return fmt::format("hidden {}, width {}, rows {}{}", shape.hidden, shape.width,
                     fmt::join(shape.rows, " "),
                     shape.activations == Nvfp4Activations::nvfp4 ? ", in nvfp4" : "");
}

/// The first results that differ, with the bits of both and what they were made of.
std::vector<std::string> mismatches(const RowCheck& check) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < check.wanted.size() && shown.size() < kMostShown; ++i) {
    const float got = check.got[i];
    const float wanted = check.wanted[i];
    if (different({got}, {wanted}) == 0) continue;
    const std::int64_t row = static_cast<std::int64_t>(i) / check.columns;
    shown.push_back(
        JsonWriter()
            .field("row", row)
            .field("column", static_cast<std::int64_t>(i) % check.columns)
            .field("got", fmt::format("{:08x}", std::bit_cast<std::uint32_t>(got)))
            .field("wanted", fmt::format("{:08x}", std::bit_cast<std::uint32_t>(wanted)))
            .raw_field("input", check.input ? check.input(row) : "null")
            .text());
  }
  return shown;
}

void add_check(const RowCheck& check, Report& report) {
  const auto count = static_cast<std::int64_t>(different(check.got, check.wanted));
  report.mismatches += count;
  report.lines.push_back(
      JsonWriter()
          .field("kernels", check.kernels)
          .field("case", check.what)
          .field("results", std::ssize(check.wanted))
          .field("different", count)
          .raw_field("first", fmt::format("[{}]", fmt::join(mismatches(check), ", ")))
          .text());
  report.markdown.push_back(
      fmt::format("| {} | {} | {} | {} |", check.kernels, check.what, check.wanted.size(), count));
  fmt::print("{:<28} {:<48} {} of {} differ\n", check.kernels, check.what, count,
             check.wanted.size());
}

void check_mlps(Device& device, const Layout& layout, Nvfp4Activations activations,
                const std::string& only, Report& report) {
  for (const DeviceKernels kernels : {DeviceKernels::portable, DeviceKernels::mma}) {
    const std::string name = fmt::format("{}/{}", kernels_name(kernels, activations, layout.format),
                                         layout_text(layout));
    if (!missing_on_chip(device.info(), layout, kernels, activations).empty() ||
        name.find(only) == std::string::npos) {
      continue;
    }
    const bool is_mma = kernels == DeviceKernels::mma;
    for (const DeviceCase::Shape& shape : device_shapes(layout, activations)) {
      const DeviceCase mlps(shape);
      add_check({.kernels = name,
                 .what = shape_text(shape),
                 .got = mlps.results_on(device, kernels),
                 .wanted = is_mma ? mlps.mma_results(device.info().chip) : mlps.cpu_results(),
                 .columns = shape.hidden,
                 .input = [&](std::int64_t row) { return mlps.input_text(row); }},
                report);
    }
  }
}

/// Rows from GPU to GPU, if there is an NCCL.
void check_exchange(const std::shared_ptr<const CudaDriver>& driver, const std::string& name,
                    Report& report) {
  std::string reason;
  const auto library = NcclLibrary::load(reason, name);
  report.nccl = library != nullptr ? library->version_text() : "none: " + reason;
  if (library != nullptr) return add_check(check_nccl(driver, library), report);
  fmt::print("no rows from GPU to GPU: {}\n", reason);
  report.markdown.push_back(fmt::format("| nccl | {} | 0 | 0 |", reason));
}

/// The library of grouped products; null, with the reason, which is told, where there is none or
/// the chip has none of its kernels.
std::shared_ptr<const GroupedLibrary> load_cutlass(const Device& device, const std::string& file,
                                                   std::string& reason) {
  constexpr Layout kNvfp4 = {.format = Format::nvfp4};
  reason = missing_on_chip(device.info(), kNvfp4, DeviceKernels::cutlass, Nvfp4Activations::nvfp4);
  auto library = reason.empty() ? GroupedLibrary::load(reason, file) : nullptr;
  if (library == nullptr) fmt::print("no products by cutlass: {}\n", reason);
  return library;
}

/// Grouped products, if the chip has them and there is the library.
void check_groups(Device& device, const std::string& file, Report& report) {
  std::string reason;
  const auto library = load_cutlass(device, file, reason);
  if (library == nullptr) {
    report.markdown.push_back(fmt::format("| cutlass | {} | 0 | 0 |", reason));
    return;
  }
  for (const RowCheck& plan : check_plans(device, library.get())) add_check(plan, report);
  for (const DeviceCase::Shape& shape : grouped_shapes()) {
    const DeviceCase mlps(shape);
    add_check({.kernels = "cutlass/nvfp4",
               .what = shape_text(shape),
               .got = mlps.results_on(device, DeviceKernels::cutlass, library.get()),
               .wanted = mlps.mma_results(device.info().chip),
               .columns = shape.hidden,
               .input = [&](std::int64_t row) { return mlps.input_text(row); }},
              report);
  }
}

Report check(const std::shared_ptr<const CudaDriver>& driver, Device& device,
             const Arguments& arguments) {
  Report report{.header = "| kernels | case | results | different |\n|---|---|---|---|\n"};
  const bool is_all = arguments.only.empty();
  if (is_all) {
    for (const RowCheck& rows : check_rows(device)) add_check(rows, report);
    for (const RowCheck& plan : check_plans(device)) add_check(plan, report);
    check_exchange(driver, arguments.nccl, report);
  }
  for (const Layout& layout : device_layouts()) {
    check_mlps(device, layout, Nvfp4Activations::bf16, arguments.only, report);
  }
  check_mlps(device, {.format = Format::nvfp4}, Nvfp4Activations::nvfp4, arguments.only, report);
  if (is_all) check_groups(device, arguments.cutlass, report);
  require(!report.lines.empty(), ErrorKind::usage, "no kernels of this GPU have {} in their name",
          arguments.only);
  return report;
}

/// What the GPU reaches at most, beside which the kernels stand.
void add_roofs(Device& device, Report& report) {
  DeviceRoofs roofs(device, kRoofSeconds);
  roofs.measure_reads();
  report.lines.push_back(JsonWriter()
                             .field("roof", "reads")
                             .field("weight_gbs", roofs.bytes_per_second() / 1e9)
                             .text());
  report.markdown.push_back(
      fmt::format("| roofs/reads | | | {:.0f} | |", roofs.bytes_per_second() / 1e9));
  for (const std::string name : {"mma", "portable"}) roofs.measure_multiply(name);
  constexpr auto kRounded = Nvfp4Activations::nvfp4;
  if (missing_on_chip(device.info(), {.format = Format::nvfp4}, DeviceKernels::mma, kRounded)
          .empty()) {
    roofs.measure_multiply("block_scaled");
  }
  for (const auto& [name, operations] : roofs.operations_per_second()) {
    const double tflops = operations / 1e12;
    report.lines.push_back(JsonWriter().field("roof", name).field("tflops", tflops).text());
    report.markdown.push_back(fmt::format("| roofs/{} | | | | {:.1f} |", name, tflops));
  }
  for (const std::string& row : report.markdown) fmt::print("{}\n", row);
}

Report bench(Device& device, const Arguments& arguments) {
  Report report{.header =
                    "| kernels | tokens | us | weights GB/s | TFLOP/s |\n|---|---|---|---|---|\n"};
  add_roofs(device, report);
  std::string reason;
  const auto cutlass = load_cutlass(device, arguments.cutlass, reason);
  for (const KernelTime& time : time_kernels(device, cutlass.get())) {
    report.lines.push_back(JsonWriter()
                               .field("kernels", time.kernels)
                               .field("tokens", time.tokens)
                               .field("us", time.seconds * 1e6)
                               .field("weight_gbs", time.weight_gbs())
                               .field("tflops", time.tflops())
                               .text());
    report.markdown.push_back(fmt::format("| {} | {} | {:.1f} | {:.0f} | {:.1f} |", time.kernels,
                                          time.tokens, time.seconds * 1e6, time.weight_gbs(),
                                          time.tflops()));
    fmt::print("{}\n", report.markdown.back());
  }
  return report;
}

void write(const Arguments& arguments, const Device& device, const CudaDriver& driver,
           const Report& report) {
  const DeviceInfo& info = device.info();
  std::ofstream json(arguments.report + ".json");
  json << JsonWriter()
              .field("gpu", info.name)
              .field("uuid", info.uuid)
              .field("chip", info.chip)
              .field("driver", driver.version_text())
              .field("release", cuda_driver_release())
              .field("toolkit", device_toolkit())
              .field("nccl", report.nccl)
              .field("mismatches", report.mismatches)
              .raw_field("lines", fmt::format("[\n{}\n]", fmt::join(report.lines, ",\n")))
              .text()
       << "\n";
  std::ofstream text(arguments.report + ".md");
  text << fmt::format("# {} (sm_{})\n\nDriver {}for CUDA {}, kernels by CUDA {}", info.name,
                      info.chip, cuda_driver_release().empty() ? "" : cuda_driver_release() + " ",
                      driver.version_text(), device_toolkit());
  if (!report.nccl.empty()) text << ", NCCL " << report.nccl;
  text << fmt::format(".\n\n{}{}\n", report.header, fmt::join(report.markdown, "\n"));
  require(json.flush().good() && text.flush().good(), ErrorKind::file,
          "{}.json and .md cannot be written", arguments.report);
}

int run(const std::vector<std::string>& words) {
  const Arguments arguments = parse(words);
  std::string reason;
  const auto driver = CudaDriver::load(reason, arguments.driver);
  if (driver == nullptr || driver->num_devices() == 0) {
    fmt::print(stderr, "no GPU: {}\n", driver == nullptr ? reason : "the driver shows none");
    return kExitNoGpu;
  }
  Device device(driver, 0, device_images());
  const Report report =
      arguments.bench ? bench(device, arguments) : check(driver, device, arguments);
  write(arguments, device, *driver, report);
  fmt::print("{}: {}\n", device.info().name,
             report.mismatches == 0 ? "nothing differs"
                                    : fmt::format("{} results differ", report.mismatches));
  return report.mismatches == 0 ? 0 : kExitMismatch;
}

}  // namespace
}  // namespace moesaic

int main(int argc, char** argv) {
  try {
    return moesaic::run({argv + 1, argv + argc});
  } catch (const moesaic::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.kind() == moesaic::ErrorKind::usage ? moesaic::kExitUsage : moesaic::kExitNoGpu;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return moesaic::kExitNoGpu;
  }
}
