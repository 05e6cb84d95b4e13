#include "src/parallel/machine_rates.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMaxRatesBytes = std::int64_t{1} << 20;
/// 2: what products take is told apart, and work on rows by what is done.
constexpr std::int64_t kVersion = 2;
/// Of a node.
constexpr std::int64_t kMostCores = std::int64_t{1} << 20;

std::string numbers_json(const std::vector<double>& numbers) {
  return fmt::format("[{:.6g}]", fmt::join(numbers, ", "));
}

std::string link_json(const std::optional<LinkRates>& link) {
  if (!link) return "null";
  return JsonWriter()
      .field("latency_seconds", link->latency_seconds)
      .field("one_rank_bytes_per_second", link->one_rank_bytes_per_second)
      .field("all_ranks_bytes_per_second", link->all_ranks_bytes_per_second)
      .text();
}

std::string gpu_json(const std::optional<GpuRates>& gpu) {
  if (!gpu) return "null";
  JsonWriter flops;
  for (const auto& [kernels, rate] : gpu->flops_per_second) flops.field(kernels, rate);
  return JsonWriter()
      .field("name", gpu->name)
      .field("read_bytes_per_second", gpu->read_bytes_per_second)
      .raw_field("flops_per_second", flops.text())
      .field("upload_bytes_per_second", gpu->upload_bytes_per_second)
      .field("download_bytes_per_second", gpu->download_bytes_per_second)
      .field("call_seconds", gpu->call_seconds)
      .field("wait_seconds", gpu->wait_seconds)
      .text();
}

/// A number above 0: it is divided by, or multiplied with.
double rate(const Json& object, std::string_view key) {
  const Json value = object.at(key);
  const double number = value.as_double();
  require(number > 0 && number < 1e30, ErrorKind::file, "{}: {} is no rate", value.where(), number);
  return number;
}

/// A number that may be 0: what is added.
double amount(const Json& object, std::string_view key) {
  const Json value = object.at(key);
  const double number = value.as_double();
  require(number >= 0 && number < 1e15, ErrorKind::file, "{}: {} is no amount", value.where(),
          number);
  return number;
}

std::vector<double> read_numbers(const Json& list) {
  std::vector<double> numbers;
  list.for_each([&](const std::string&, const Json& value) {
    numbers.push_back(value.as_double());
    require(numbers.back() > 0, ErrorKind::file, "{}: {} is not above 0", value.where(),
            numbers.back());
  });
  return numbers;
}

bool ascend(const std::vector<double>& sizes) {
  return std::ranges::adjacent_find(sizes, std::ranges::greater_equal()) == sizes.end();
}

/// {SIZES: [...], VALUES: [...]}
RateCurve read_rates(const Json& json, std::string_view sizes, std::string_view values) {
  RateCurve curve{.sizes = read_numbers(json.at(sizes)), .values = read_numbers(json.at(values))};
  require(!curve.sizes.empty() && curve.sizes.size() == curve.values.size() && ascend(curve.sizes),
          ErrorKind::file, "{}: {} ascend, and each has its {}", json.where(), sizes, values);
  return curve;
}

std::string rates_json(const RateCurve& curve, std::string_view sizes, std::string_view values) {
  return JsonWriter()
      .raw_field(sizes, numbers_json(curve.sizes))
      .raw_field(values, numbers_json(curve.values))
      .text();
}

ProductCurve read_curve(const Json& json) {
  RateCurve cold = read_rates(json, "rows", "seconds_per_weight");
  return {.rows = std::move(cold.sizes),
          .seconds_per_weight = std::move(cold.values),
          .cached_seconds_per_weight = read_rates(json.at("cached"), "rows", "seconds_per_weight"),
          .column_seconds = rate(json, "column_seconds"),
          .pack_f32_seconds = rate(json, "pack_f32_seconds"),
          .pack_bf16_seconds = rate(json, "pack_bf16_seconds"),
          .result_seconds = rate(json, "result_seconds"),
          .streamed_result_seconds = rate(json, "streamed_result_seconds")};
}

std::string curve_json(const ProductCurve& curve) {
  return JsonWriter()
      .raw_field("rows", numbers_json(curve.rows))
      .raw_field("seconds_per_weight", numbers_json(curve.seconds_per_weight))
      .raw_field("cached",
                 rates_json(curve.cached_seconds_per_weight, "rows", "seconds_per_weight"))
      .field("column_seconds", curve.column_seconds)
      .field("pack_f32_seconds", curve.pack_f32_seconds)
      .field("pack_bf16_seconds", curve.pack_bf16_seconds)
      .field("result_seconds", curve.result_seconds)
      .field("streamed_result_seconds", curve.streamed_result_seconds)
      .text();
}

std::optional<LinkRates> read_link(const Json& file, std::string_view key) {
  const std::optional<Json> json = file.find(key);
  if (!json) return std::nullopt;
  return LinkRates{.latency_seconds = rate(*json, "latency_seconds"),
                   .one_rank_bytes_per_second = rate(*json, "one_rank_bytes_per_second"),
                   .all_ranks_bytes_per_second = rate(*json, "all_ranks_bytes_per_second")};
}

/// Files of before there were GPUs in them have none.
std::optional<GpuRates> read_gpu(const Json& file) {
  const std::optional<Json> json = file.find("gpu");
  if (!json) return std::nullopt;
  GpuRates gpu{.name = json->at("name").as_string(),
               .read_bytes_per_second = rate(*json, "read_bytes_per_second"),
               .upload_bytes_per_second = rate(*json, "upload_bytes_per_second"),
               .download_bytes_per_second = rate(*json, "download_bytes_per_second"),
               .call_seconds = rate(*json, "call_seconds"),
               .wait_seconds = amount(*json, "wait_seconds")};
  const Json flops = json->at("flops_per_second");
  flops.for_each([&](const std::string& kernels, const Json&) {
    gpu.flops_per_second.emplace(kernels, rate(flops, kernels));
  });
  return gpu;
}

std::map<Format, ProductCurve> read_products(const Json& json) {
  std::map<Format, ProductCurve> products;
  json.for_each([&](const std::string& name, const Json& value) {
    const std::optional<Format> format = format_from_name(name);
    require(format.has_value(), ErrorKind::file, "{}: there is no format \"{}\"", value.where(),
            name);
    products.emplace(*format, read_curve(value));
  });
  return products;
}

std::string row_ops_json(const MachineRates& machine) {
  JsonWriter ops;
  for (std::size_t op = 0; op < kNumRowOps; ++op) {
    ops.raw_field(kRowOpNames[op],
                  rates_json(machine.row_ops[op], "numbers", "seconds_per_number"));
  }
  return ops.text();
}

std::string routing_json(const RoutingRates& routing) {
  return JsonWriter()
      .field("score_seconds", routing.score_seconds)
      .field("choice_seconds", routing.choice_seconds)
      .field("plan_seconds", routing.plan_seconds)
      .text();
}

std::string calls_json(const CallRates& calls) {
  return JsonWriter()
      .field("job_seconds", calls.job_seconds)
      .field("product_seconds", calls.product_seconds)
      .field("group_seconds", calls.group_seconds)
      .text();
}

void read_work(const Json& file, MachineRates& machine) {
  machine.attention_flops_per_second =
      read_rates(file.at("attention"), "head_dim", "flops_per_second");
  machine.read_bytes_per_second = read_rates(file.at("reads"), "bytes", "bytes_per_second");
  const Json ops = file.at("row_ops");
  for (std::size_t op = 0; op < kNumRowOps; ++op) {
    machine.row_ops[op] = read_rates(ops.at(kRowOpNames[op]), "numbers", "seconds_per_number");
  }
  const Json routing = file.at("routing");
  machine.routing = {.score_seconds = rate(routing, "score_seconds"),
                     .choice_seconds = rate(routing, "choice_seconds"),
                     .plan_seconds = rate(routing, "plan_seconds")};
  const Json calls = file.at("calls");
  machine.calls = {.job_seconds = rate(calls, "job_seconds"),
                   .product_seconds = rate(calls, "product_seconds"),
                   .group_seconds = rate(calls, "group_seconds")};
}

/// Where a number of rows lies among those that were measured.
double interpolate(const std::vector<double>& sizes, const std::vector<double>& values,
                   double size) {
  const auto above = std::ranges::lower_bound(sizes, size);
  if (above == sizes.begin()) return values.front();
  if (above == sizes.end()) return values.back();
  const auto right = static_cast<std::size_t>(above - sizes.begin());
  const std::size_t left = right - 1;
  const double share = (size - sizes[left]) / (sizes[right] - sizes[left]);
  return values[left] + share * (values[right] - values[left]);
}

}  // namespace

double RateCurve::at(double size) const {
  return interpolate(sizes, values, size);
}

double ProductCurve::seconds(double num_rows, double weights, double coldness) const {
  const double beyond = std::max(1.0, num_rows / rows.back());
  const double cold = interpolate(rows, seconds_per_weight, num_rows) * beyond;
  // What reads from memory cost is no more for more rows than were measured.
  const double like = std::min(num_rows, cached_seconds_per_weight.sizes.back());
  const double saved =
      interpolate(rows, seconds_per_weight, like) - cached_seconds_per_weight.at(like);
  return weights * (cold - (1 - coldness) * std::max(0.0, saved));
}

double MachineRates::coldness(double bytes) const {
  const double nearest = 1 / read_bytes_per_second.values.front();
  const double farthest = 1 / memory_bytes_per_second();
  if (farthest <= nearest) return 1;
  const double share = (1 / read_bytes_per_second.at(bytes) - nearest) / (farthest - nearest);
  return std::clamp(share, 0.0, 1.0);
}

std::string MachineRates::text() const {
  JsonWriter curves;
  for (const auto& [format, curve] : products) {
    curves.raw_field(format_name(format), curve_json(curve));
  }
  return JsonWriter()
      .field("moesaic_machine", kVersion)
      .field("measured", measured)
      .field("cpu", cpu)
      .field("isa", isa)
      .field("cores", cores)
      .raw_field("products", curves.text())
      .raw_field("attention",
                 rates_json(attention_flops_per_second, "head_dim", "flops_per_second"))
      .raw_field("reads", rates_json(read_bytes_per_second, "bytes", "bytes_per_second"))
      .raw_field("row_ops", row_ops_json(*this))
      .raw_field("routing", routing_json(routing))
      .raw_field("calls", calls_json(calls))
      .field("barrier_seconds", barrier_seconds)
      .raw_field("inside", link_json(inside))
      .raw_field("between", link_json(between))
      .raw_field("gpu", gpu_json(gpu))
      .field("rank_bytes", rank_bytes)
      .field("node_bytes", node_bytes)
      .text();
}

MachineRates read_machine_rates(const std::string& path) {
  const Json file = Json::read_file(path, kMaxRatesBytes);
  require(file.contains("moesaic_machine"), ErrorKind::file,
          "{}: no field \"moesaic_machine\": moesaic doctor --measure FILE writes such files",
          path);
  const Json version = file.at("moesaic_machine");
  require(version.as_int() == kVersion, ErrorKind::file,
          "{}: version {}; this program reads {}: measure again with moesaic doctor --measure",
          version.where(), version.as_int(), kVersion);
  MachineRates machine;
  machine.measured = file.at("measured").as_string();
  machine.cpu = file.at("cpu").as_string();
  machine.isa = file.at("isa").as_string();
  machine.cores = static_cast<int>(file.at("cores").as_int(1, kMostCores));
  machine.products = read_products(file.at("products"));
  read_work(file, machine);
  machine.barrier_seconds = amount(file, "barrier_seconds");
  machine.inside = read_link(file, "inside");
  machine.between = read_link(file, "between");
  machine.gpu = read_gpu(file);
  machine.rank_bytes = static_cast<std::int64_t>(amount(file, "rank_bytes"));
  machine.node_bytes = static_cast<std::int64_t>(amount(file, "node_bytes"));
  machine.path = path;
  return machine;
}

}  // namespace moesaic
