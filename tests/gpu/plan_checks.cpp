#include "tests/gpu/plan_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/cuda/choice_plan.h"
#include "kernels/cuda/mlp_products.h"
#include "tests/gpu/device_case.h"

namespace moesaic {
namespace {

constexpr double kPassSeconds = 300;
constexpr std::int64_t kBudget = 256;
constexpr std::int64_t kPlanTopk = 3;
constexpr std::int64_t kHere = 6;  // experts: those of even ids
constexpr std::int64_t kAllExperts = 2 * kHere;

/// Which of the GPU's MLPs an expert is, or -1.
std::int32_t mlp_of_expert(std::int64_t expert) {
  return expert % 2 == 0 ? static_cast<std::int32_t>(expert / 2) : -1;
}

/// Of each input, ascending.
std::vector<std::int32_t> draw_choices(std::int64_t inputs, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> choices;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kAllExperts));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  for (std::int64_t input = 0; input < inputs; ++input) {
    std::ranges::shuffle(ids, random);
    if (input % 3 == 0) std::swap(ids[0], *std::ranges::find(ids, 2));  // a popular one
    std::sort(ids.begin(), ids.begin() + kPlanTopk);
    choices.insert(choices.end(), ids.begin(), ids.begin() + kPlanTopk);
  }
  return choices;
}

/// By plain loops.
struct HostPlan {
  explicit HostPlan(const std::vector<std::int32_t>& choices)
      : places(static_cast<std::size_t>(kBudget * kPlanTopk), -1) {
    for (std::int32_t mlp = 0; mlp < kHere; ++mlp) {
      const std::int64_t first = std::ssize(rows);
      for (std::size_t choice = 0; choice < choices.size(); ++choice) {
        if (mlp_of_expert(choices[choice]) != mlp) continue;
        places[choice] = static_cast<std::int32_t>(rows.size());
        rows.push_back(static_cast<std::int32_t>(choice) / static_cast<std::int32_t>(kPlanTopk));
      }
      groups.push_back({mlp, first, std::ssize(rows) - first});
    }
  }
  std::vector<std::int32_t> places;
  std::vector<std::int32_t> rows;
  std::vector<DeviceRows> groups;
};

/// Experts, and a graph that plans and runs batches of up to kBudget inputs.
class PlannedPass {
 public:
  PlannedPass(Device& device, DeviceKernels kernels, const GroupedLibrary* library)
      : device_(device),
        is_grouped_(library != nullptr),
        mlps_({.layout = {.format = Format::nvfp4},
               .hidden = hidden_,
               .width = width_,
               .rows = {kBudget, 1, 1, 1, 1, 1},
               .activations = activations_}),
        plan_(device) {
    std::vector<MlpWeights> weights = mlps_.mlps;
    for (MlpWeights& mlp : weights) {
      for (PackedMatrix* const matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
        panels_.push_back(device.allocate(matrix->bytes()));
        device.upload(panels_.back().address(), matrix->panels, matrix->bytes());
        matrix->panels = reinterpret_cast<const std::byte*>(panels_.back().address());
      }
    }
    products_.emplace(DeviceMlps::Setup{.device = device,
                                        .scratch = scratch_,
                                        .kernels = kernels,
                                        .nvfp4_activations = activations_,
                                        .library = library},
                      weights);
    device.upload(x_.address(), mlps_.x.data(), x_.bytes());
    std::vector<std::int32_t> mlps;
    for (std::int64_t expert = 0; expert < kAllExperts; ++expert)
      mlps.push_back(mlp_of_expert(expert));
    device.upload(mlps_of_experts_.address(), mlps.data(), mlps_of_experts_.bytes());
    finish();
    kinds_ = tile_kinds(products_->tile_sizes(), kRoom);
    tiles_ = device.allocate(num_tiles(kinds_) * static_cast<std::int64_t>(sizeof(cuda::MlpTile)));
    graph_ = device.capture([&] { ask(); });
  }

  /// Checks a batch with these choices: its plan, and its results.
  void check(const std::vector<std::int32_t>& choices, RowCheck& plan, RowCheck& results) {
    const HostPlan wanted(choices);
    const auto num_rows = std::ssize(wanted.rows);
    const std::vector<float> by_host = results_of_host(wanted);
    std::memset(host_.data(), 0, static_cast<std::size_t>(host_.bytes()));
    const auto inputs = static_cast<std::int32_t>(std::ssize(choices) / kPlanTopk);
    std::memcpy(host_.data(), &inputs, 4);
    std::memcpy(host_.data() + kChoicesAt, choices.data(), choices.size() * 4);
    device_.launch(graph_);
    add(wanted.places, get<std::int32_t>(places_, kBudget * kPlanTopk), plan);
    add(wanted.rows, get<std::int32_t>(rows_, num_rows), plan);
    std::vector<std::int32_t> tiles;
    for (std::size_t kind = 0; kind < products_->tile_sizes().size(); ++kind) {
      std::vector<cuda::MlpTile> own = tiles_of_kind(products_->tile_sizes(), kind, wanted.groups);
      own.resize(static_cast<std::size_t>(kinds_.most[kind]));
      for (const cuda::MlpTile& tile : own) {
        tiles.insert(tiles.end(), {tile.mlp, tile.first_row, tile.num_rows});
      }
    }
    add(tiles, get<std::int32_t>(tiles_, std::ssize(tiles)), plan);
    const std::vector<float> by_graph = get<float>(results_, num_rows * hidden_);
    results.wanted.insert(results.wanted.end(), by_host.begin(), by_host.end());
    results.got.insert(results.got.end(), by_graph.begin(), by_graph.end());
  }

  [[nodiscard]] std::int64_t columns() const noexcept { return hidden_; }

 private:
  static constexpr std::int64_t kChoicesAt = 16;  // behind the number of inputs
  static constexpr PlanRoom kRoom = {.inputs = kBudget, .topk = kPlanTopk, .mlps = kHere};

  void ask() {
    const CudaAddress choices = inputs_.address() + CudaAddress{kChoicesAt};
    device_.upload(inputs_.address(), host_.data(), host_.bytes());
    plan_.make({.num_inputs = inputs_.address(),
                .experts = choices,
                .mlps_of_experts = mlps_of_experts_.address(),
                .num_experts = kAllExperts,
                .row_indices = rows_.address(),
                .places = places_.address(),
                .first_rows = first_rows_.address(),
                .tiles = tiles_.address(),
                .room = kRoom,
                .kinds = kinds_});
    products_->start({.pass = {.x = x_.address(),
                               .num_inputs = kBudget,
                               .row_indices = rows_.address(),
                               .num_rows = kRoom.rows(),
                               .y = results_.address()},
                      .kinds = kinds_,
                      .tiles = tiles_.address(),
                      .num_inputs = inputs_.address(),
                      .num_rows = first_rows_.address() + CudaAddress{kHere * 4},
                      .inner = inner_.address(),
                      .rounded = rounded_.address()});
  }
  std::vector<float> results_of_host(const HostPlan& plan) {
    const auto num_rows = std::ssize(plan.rows);
    const DeviceBuffer indices = device_.allocate(num_rows * 4);
    const DeviceBuffer y = device_.allocate(num_rows * hidden_ * 4);
    device_.upload(indices.address(), plan.rows.data(), indices.bytes());
    products_->start({x_.address(), kBudget, indices.address(), num_rows, y.address()},
                     plan.groups);
    return get<float>(y, num_rows * hidden_);
  }
  template <typename T>
  std::vector<T> get(const DeviceBuffer& from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device_.download(values.data(), from.address(), count * static_cast<std::int64_t>(sizeof(T)));
    finish();
    return values;
  }
  static void add(const std::vector<std::int32_t>& wanted, const std::vector<std::int32_t>& got,
                  RowCheck& check) {
    for (const std::int32_t value : wanted) check.wanted.push_back(static_cast<float>(value));
    for (const std::int32_t value : got) check.got.push_back(static_cast<float>(value));
  }
  void finish() {
    device_.mark();
    device_.wait_for_mark(kPassSeconds);
  }

  Device& device_;
  bool is_grouped_;
  std::int64_t hidden_ = is_grouped_ ? 128 : 80;
  std::int64_t width_ = is_grouped_ ? 128 : 48;
  Nvfp4Activations activations_ = is_grouped_ ? Nvfp4Activations::nvfp4 : Nvfp4Activations::bf16;
  DeviceCase mlps_;
  DeviceChoicePlan plan_;
  DeviceScratch scratch_;
  std::vector<DeviceBuffer> panels_;
  std::optional<DeviceMlps> products_;
  cuda::TileKinds kinds_{};
  PinnedBuffer host_ = device_.allocate_pinned(kChoicesAt + kRoom.rows() * 4);
  DeviceBuffer inputs_ = device_.allocate(host_.bytes());
  DeviceBuffer x_ = device_.allocate(kBudget * hidden_ * 2);
  DeviceBuffer mlps_of_experts_ = device_.allocate(kAllExperts * 4);
  DeviceBuffer rows_ = device_.allocate(kRoom.rows() * 4);
  DeviceBuffer places_ = device_.allocate(kRoom.rows() * 4);
  DeviceBuffer first_rows_ = device_.allocate((kHere + 1) * 4);
  DeviceBuffer tiles_;
  DeviceBuffer inner_ = device_.allocate(kRoom.rows() * width_ * 2);
  GroupedRoom room_{.rows = kRoom.rows(), .mlps = kHere, .hidden = hidden_, .width = width_};
  DeviceBuffer rounded_ = device_.allocate(is_grouped_ ? room_.bytes() : 0);
  DeviceBuffer results_ = device_.allocate(kRoom.rows() * hidden_ * 4);
  DeviceGraph graph_;
};

}  // namespace

std::vector<RowCheck> check_plans(Device& device, const GroupedLibrary* library) {
  std::vector<RowCheck> checks;
  std::vector<DeviceKernels> all = {DeviceKernels::portable, DeviceKernels::mma};
  if (library != nullptr) all = {DeviceKernels::cutlass};
  for (const DeviceKernels kernels : all) {
    const std::string_view name = kernels_name(kernels, Nvfp4Activations::bf16);
    PlannedPass pass(device, kernels, library);
    RowCheck plan{.kernels = "rows/plan", .what = fmt::format("for tiles of {}", name)};
    RowCheck results{.kernels = fmt::format("graph/{}", name),
                     .what = "1 to 256 inputs",
                     .columns = pass.columns()};
    for (const std::int64_t inputs : {1, 256, 33, 200}) {
      pass.check(draw_choices(inputs, static_cast<unsigned>(inputs)), plan, results);
    }
    checks.push_back(std::move(plan));
    checks.push_back(std::move(results));
  }
  return checks;
}

}  // namespace moesaic
