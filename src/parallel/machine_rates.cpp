#include "src/parallel/machine_rates.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMaxRatesBytes = std::int64_t{1} << 20;
constexpr std::int64_t kVersion = 1;

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

/// A number above 0: it is divided by, or multiplied with.
double rate(const Json& object, std::string_view key) {
  const Json value = object.at(key);
  const double number = value.as_double();
  require(number > 0 && number < 1e30, ErrorKind::file, "{}: {} is no rate", value.where(), number);
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

ProductCurve read_curve(const Json& json) {
  ProductCurve curve{.rows = read_numbers(json.at("rows")),
                     .seconds_per_weight = read_numbers(json.at("seconds_per_weight"))};
  require(
      !curve.rows.empty() && curve.rows.size() == curve.seconds_per_weight.size() &&
          std::ranges::adjacent_find(curve.rows, std::ranges::greater_equal()) == curve.rows.end(),
      ErrorKind::file, "{}: rows ascend, and each has its seconds_per_weight", json.where());
  return curve;
}

std::optional<LinkRates> read_link(const Json& file, std::string_view key) {
  const std::optional<Json> json = file.find(key);
  if (!json) return std::nullopt;
  return LinkRates{.latency_seconds = rate(*json, "latency_seconds"),
                   .one_rank_bytes_per_second = rate(*json, "one_rank_bytes_per_second"),
                   .all_ranks_bytes_per_second = rate(*json, "all_ranks_bytes_per_second")};
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

}  // namespace

double ProductCurve::seconds(double num_rows, double weights) const {
  const auto above = std::ranges::lower_bound(rows, num_rows);
  if (above == rows.begin()) return seconds_per_weight.front() * weights;
  if (above == rows.end()) return seconds_per_weight.back() * weights * num_rows / rows.back();
  const auto right = static_cast<std::size_t>(above - rows.begin());
  const std::size_t left = right - 1;
  const double share = (num_rows - rows[left]) / (rows[right] - rows[left]);
  return weights * (seconds_per_weight[left] +
                    share * (seconds_per_weight[right] - seconds_per_weight[left]));
}

std::string MachineRates::text() const {
  JsonWriter curves;
  for (const auto& [format, curve] : products) {
    curves.raw_field(format_name(format),
                     JsonWriter()
                         .raw_field("rows", numbers_json(curve.rows))
                         .raw_field("seconds_per_weight", numbers_json(curve.seconds_per_weight))
                         .text());
  }
  return JsonWriter()
      .field("moesaic_machine", kVersion)
      .field("measured", measured)
      .field("cpu", cpu)
      .field("isa", isa)
      .field("cores", cores)
      .raw_field("products", curves.text())
      .field("attention_flops_per_second", attention_flops_per_second)
      .field("read_bytes_per_second", read_bytes_per_second)
      .field("row_bytes_per_second", row_bytes_per_second)
      .field("job_seconds", job_seconds)
      .field("barrier_seconds", barrier_seconds)
      .raw_field("inside", link_json(inside))
      .raw_field("between", link_json(between))
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
  require(version.as_int() == kVersion, ErrorKind::file, "{}: version {}; this program reads {}",
          version.where(), version.as_int(), kVersion);
  MachineRates machine;
  machine.measured = file.at("measured").as_string();
  machine.cpu = file.at("cpu").as_string();
  machine.isa = file.at("isa").as_string();
  machine.cores = static_cast<int>(rate(file, "cores"));
  machine.products = read_products(file.at("products"));
  machine.attention_flops_per_second = rate(file, "attention_flops_per_second");
  machine.read_bytes_per_second = rate(file, "read_bytes_per_second");
  machine.row_bytes_per_second = rate(file, "row_bytes_per_second");
  machine.job_seconds = rate(file, "job_seconds");
  machine.barrier_seconds = file.at("barrier_seconds").as_double();
  machine.inside = read_link(file, "inside");
  machine.between = read_link(file, "between");
  machine.rank_bytes = file.at("rank_bytes").as_int();
  machine.node_bytes = file.at("node_bytes").as_int();
  machine.path = path;
  return machine;
}

}  // namespace moesaic
