#include "src/lora/adapter_writer.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/directory.h"
#include "base/output_file.h"
#include "src/lora/adapter_files.h"
#include "src/lora/module_factors.h"

namespace moesaic {
namespace {

std::int64_t ranks_of(const WrittenModule& written) {
  return written.rank * std::max<std::int64_t>(written.module.experts, 1);
}

std::vector<TensorSpec> tensor_specs(const std::vector<WrittenModule>& modules) {
  std::vector<TensorSpec> specs;
  for (const WrittenModule& written : modules) {
    const std::int64_t ranks = ranks_of(written);
    specs.push_back({written.module.a_key(), DType::f32, {ranks, written.module.file_in()}});
    specs.push_back({written.module.b_key(), DType::f32, {written.module.file_out(), ranks}});
  }
  return specs;
}

}  // namespace

AdapterWriter::AdapterWriter(const std::string& path, std::span<const AdapterSpec> adapters,
                             const AdapterDescription& description)
    : adapters_(adapters),
      modules_(written_modules(adapters, description.layout, description.rank_stabilised)),
      places_(adapters.size()),
      writer_(path, tensor_specs(modules_)) {
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    const std::vector<PeftMember>& members = modules_[m].module.members;
    for (std::size_t i = 0; i < members.size(); ++i) {
      places_[static_cast<std::size_t>(members[i].adapter)] = {m, i};
    }
  }
}

void AdapterWriter::add(std::int64_t index, std::span<const float> a, std::span<const float> b) {
  if (!a.empty()) last_a_.assign(a.begin(), a.end());
  const Place place = places_[static_cast<std::size_t>(index)];
  const WrittenModule& to = modules_[place.module];
  if (to.module.experts == 0) {
    write(to.module.a_key(), last_a_);
    write(to.module.b_key(), b);
    return;
  }
  const auto [found, is_new] = fused_.try_emplace(place.module);
  FusedFactors& fused = found->second;
  if (is_new) {
    fused.a.resize(static_cast<std::size_t>(ranks_of(to) * to.module.in));
    fused.b.resize(static_cast<std::size_t>(ranks_of(to) * to.module.out));
    fused.missing = to.module.members.size();
  }
  fuse(to, to.module.members[place.member], fused, b);
  if (--fused.missing > 0) return;
  const FileFactors its = in_file_order(to.module, std::move(fused.a), std::move(fused.b));
  fused_.erase(found);
  write(to.module.a_key(), its.a);
  write(to.module.b_key(), its.b);
}

void AdapterWriter::fuse(const WrittenModule& to, const PeftMember& member, FusedFactors& fused,
                         std::span<const float> b) const {
  const AdapterSpec& adapter = adapters_[static_cast<std::size_t>(member.adapter)];
  const std::int64_t first_rank = member.part == MlpPart::up ? to.up_first_rank : 0;
  if (!adapter.shares_a) {
    const std::int64_t first_row = member.expert * to.rank + first_rank;
    std::ranges::copy(last_a_, fused.a.begin() + first_row * to.module.in);
  }
  for (std::int64_t o = 0; o < adapter.site.out; ++o) {
    float* const row = fused.b.data() + (member.first_out + o) * ranks_of(to);
    for (std::int64_t r = 0; r < adapter.rank; ++r) {
      row[(first_rank + r) * to.module.experts + member.expert] =
          b[static_cast<std::size_t>(o * adapter.rank + r)];
    }
  }
}

void AdapterWriter::write(const std::string& key, std::span<const float> values) {
  writer_.write(key, 0, std::as_bytes(values));
}

namespace {

/// Both files of a directory, under way.
class AdapterOutput {
 public:
  AdapterOutput(const std::string& directory, const SavedAdapter& adapter)
      : folder_(made(directory)),
        config_(peft_config_text(adapter.description, adapter.adapters, adapter.sites)),
        writer_((folder_ / kAdapterTensorsFile).string(), adapter.adapters, adapter.description) {}

  [[nodiscard]] AdapterWriter& tensors() noexcept { return writer_; }
  void finish() {
    writer_.finish();
    replace_file((folder_ / kAdapterConfigFile).string(), config_);
  }

 private:
  static std::filesystem::path made(const std::string& directory) {
    make_directories(directory);
    return directory;
  }

  std::filesystem::path folder_;
  std::string config_;
  AdapterWriter writer_;
};

std::span<const float> values_of(MatrixView<const float> factor) {
  return {factor.data(), static_cast<std::size_t>(factor.rows() * factor.cols())};
}

}  // namespace

std::int64_t adapter_file_bytes(const SavedAdapter& adapter) {
  constexpr std::int64_t kEntryBytes = 128;  // of the header, for a tensor, besides its name
  const AdapterDescription& description = adapter.description;
  const std::vector<WrittenModule> modules =
      written_modules(adapter.adapters, description.layout, description.rank_stabilised);
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : tensor_specs(modules)) {
    bytes += tensor.shape[0] * tensor.shape[1] * dtype_bytes(tensor.dtype) + kEntryBytes +
             std::ssize(tensor.name);
  }
  return bytes;
}

void save_adapter(const std::string& directory, const SavedAdapter& adapter,
                  std::span<const float> values, const AdapterExchange& exchange) {
  std::optional<AdapterOutput> output;
  if (exchange.is_first()) output.emplace(directory, adapter);
  exchange.collect(values, [&](std::int64_t index, std::span<const float> a,
                               std::span<const float> b) { output->tensors().add(index, a, b); });
  if (output) output->finish();
}

std::int64_t saving_bytes(const SavedAdapter& adapter) {
  const AdapterDescription& description = adapter.description;
  std::map<std::int64_t, std::int64_t> values;  // of fused modules, by layer
  std::int64_t most = 0;
  for (const WrittenModule& written :
       written_modules(adapter.adapters, description.layout, description.rank_stabilised)) {
    const PeftModule& module = written.module;
    if (module.experts == 0) continue;
    const auto first = static_cast<std::size_t>(module.members.front().adapter);
    // What stands in another order in the file is there twice for a while.
    const std::int64_t copies = module.takes_turns || module.is_swapped ? 2 : 1;
    std::int64_t& of_layer = values[adapter.adapters[first].site.layer];
    of_layer += copies * ranks_of(written) * (module.in + module.out);
    most = std::max(most, of_layer);
  }
  return AdapterExchange::scratch_bytes(adapter.adapters) +
         most * static_cast<std::int64_t>(sizeof(float));
}

void save_adapter(const std::string& directory, const SavedAdapter& adapter, const AdapterSet& set,
                  const std::function<void(std::int64_t done, std::int64_t total)>& watch) {
  AdapterOutput output(directory, adapter);
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const AdapterFactors<const float> its = set.factors(i);
    const bool shares_a = set.spec(i).shares_a;
    output.tensors().add(i, shares_a ? std::span<const float>() : values_of(its.a),
                         values_of(its.b));
    if (watch) watch(i + 1, set.size());
  }
  output.finish();
}

}  // namespace moesaic
