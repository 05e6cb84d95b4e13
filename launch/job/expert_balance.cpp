#include "launch/job/expert_balance.h"

#include "base/output_file.h"
#include "launch/job/agreement.h"
#include "launch/job/placement_choice.h"
#include "launch/job/written_files.h"

namespace moesaic {

void require_recordable(const Runtime& runtime) {
  agree(runtime.world(), [&] {
    require_apart(runtime.options());
    const std::optional<std::string>& path = runtime.options().record_load;
    if (path && runtime.is_first()) require_replaceable(*path);
  });
}

ExpertLoads::ExpertLoads(const Runtime& runtime, Engine& engine)
    : runtime_(runtime),
      config_(engine.transformer().config()),
      placement_(engine.placement()),
      rows_(engine.transformer().expert_rows()) {
  for (std::vector<std::int64_t>& layer : rows_) runtime.world().sum(std::span(layer));
}

ExpertBalance ExpertLoads::balance() const {
  if (rows_.empty()) return {};
  const std::vector<std::int64_t> with = experts_of(config_).with;
  const ModelPlacement contiguous(ExpertPlacement(config_.num_experts, placement_.num_ranks()));
  return {.contiguous = busiest_share(rows_, with, contiguous),
          .placed = busiest_share(rows_, with, placement_)};
}

void ExpertLoads::record() const {
  const std::optional<std::string>& path = runtime_.options().record_load;
  if (!path) return;
  agree(runtime_.world(), [&] {
    if (!runtime_.is_first()) return;
    replace_file(*path, expert_record_json(rows_, config_.experts_per_token));
  });
}

}  // namespace moesaic
