// Kernels on a GPU that is there: their bytes against what software says, or how fast they are. A
// program of its own, without MPI, that can be taken to such a machine (tests/gpu/run.sh --pack).
//
// usage: gpu_check [check|bench] [--driver LIBRARY] [--report PREFIX]
//   PREFIX.json and PREFIX.md are written. Exit codes: 0 all is as it should be; 1 a mismatch; 4 no
//   GPU, or an error of one.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <bit>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tests/gpu/device_case.h"
#include "tests/gpu/kernel_times.h"

namespace moesaic {
namespace {

constexpr int kExitMismatch = 1;
constexpr int kExitNoGpu = 4;
constexpr std::size_t kMostShown = 8;  // mismatches of a case

struct Arguments {
  bool bench = false;
  std::string driver = "libcuda.so.1";
  std::string report = "gpu-report";
};

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "check" || words[i] == "bench") {
      arguments.bench = words[i] == "bench";
    } else if (words[i] == "--driver" && has_value) {
      arguments.driver = words[++i];
    } else if (words[i] == "--report" && has_value) {
      arguments.report = words[++i];
    } else {
      fail(ErrorKind::usage, "gpu_check [check|bench] [--driver LIBRARY] [--report PREFIX], not {}",
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
  std::int64_t mismatches = 0;
};

std::string shape_text(const DeviceCase::Shape& shape) {
  return fmt::format("hidden {}, width {}, rows {}{}", shape.hidden, shape.width,
                     fmt::join(shape.rows, " "),
                     shape.activations == Nvfp4Activations::nvfp4 ? ", in nvfp4" : "");
}

/// The first results that differ, with the bits of both.
std::vector<std::string> mismatches(const std::vector<float>& got, const std::vector<float>& wanted,
                                    std::int64_t hidden) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < wanted.size() && shown.size() < kMostShown; ++i) {
    if (different({got[i]}, {wanted[i]}) == 0) continue;
    shown.push_back(
        JsonWriter()
            .field("row", static_cast<std::int64_t>(i) / hidden)
            .field("column", static_cast<std::int64_t>(i) % hidden)
            .field("got", fmt::format("{:08x}", std::bit_cast<std::uint32_t>(got[i])))
            .field("wanted", fmt::format("{:08x}", std::bit_cast<std::uint32_t>(wanted[i])))
            .text());
  }
  return shown;
}

void check_case(Device& device, DeviceKernels kernels, const DeviceCase& mlps, Report& report) {
  const bool is_mma = kernels == DeviceKernels::mma;
  const std::vector<float> wanted =
      is_mma ? mlps.mma_results(device.info().chip) : mlps.cpu_results();
  const std::vector<float> got = mlps.results_on(device, kernels);
  const auto count = static_cast<std::int64_t>(different(got, wanted));
  report.mismatches += count;
  const DeviceCase::Shape& shape = mlps.shape;
  const std::string name =
      fmt::format("{}/{}", kernels_name(kernels, shape.activations, shape.layout.format),
                  layout_text(shape.layout));
  report.lines.push_back(
      JsonWriter()
          .field("kernels", name)
          .field("case", shape_text(shape))
          .field("results", static_cast<std::int64_t>(wanted.size()))
          .field("different", count)
          .raw_field("first",
                     fmt::format("[{}]", fmt::join(mismatches(got, wanted, shape.hidden), ", ")))
          .text());
  report.markdown.push_back(
      fmt::format("| {} | {} | {} | {} |", name, shape_text(shape), wanted.size(), count));
  fmt::print("{:<28} {:<48} {} of {} differ\n", name, shape_text(shape), count, wanted.size());
}

Report check(Device& device) {
  Report report{.header = "| kernels | case | results | different |\n|---|---|---|---|\n"};
  const auto check_shapes = [&](const Layout& layout, Nvfp4Activations activations) {
    for (const DeviceCase::Shape& shape : device_shapes(layout, activations)) {
      const DeviceCase mlps(shape);
      for (const DeviceKernels kernels : {DeviceKernels::portable, DeviceKernels::mma}) {
        if (!missing_on_chip(device.info(), layout, kernels, activations).empty()) continue;
        check_case(device, kernels, mlps, report);
      }
    }
  };
  for (const Layout& layout : device_layouts()) check_shapes(layout, Nvfp4Activations::bf16);
  check_shapes({.format = Format::nvfp4}, Nvfp4Activations::nvfp4);
  return report;
}

Report bench(Device& device) {
  Report report{.header =
                    "| kernels | tokens | us | weights GB/s | TFLOP/s |\n|---|---|---|---|---|\n"};
  for (const KernelTime& time : time_kernels(device)) {
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
              .field("toolkit", device_toolkit())
              .field("mismatches", report.mismatches)
              .raw_field("lines", fmt::format("[\n{}\n]", fmt::join(report.lines, ",\n")))
              .text()
       << "\n";
  std::ofstream text(arguments.report + ".md");
  text << fmt::format("# {} (sm_{}), driver for CUDA {}, kernels by CUDA {}\n\n{}{}\n", info.name,
                      info.chip, driver.version_text(), device_toolkit(), report.header,
                      fmt::join(report.markdown, "\n"));
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
  const Report report = arguments.bench ? bench(device) : check(device);
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
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return moesaic::kExitNoGpu;
  }
}
