#include "launch/job/gpu_road.h"

#include <fmt/core.h>

#include <array>

#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/options/choices.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

/// Why no batches can stay on this rank's GPU; empty: they can. A rank that is alone looks at each
/// batch.
std::string hindrance(const Options& options, const GpuRoad::Rank& rank, bool is_alone) {
  if (rank.gpu.device == nullptr) return "it has no GPU: " + rank.gpu.reason;
  if (rank.work == nullptr) return "it has no experts on its GPU";
  if (is_alone) return hindering_option(options);
  if (!rank.has_all) return "it has experts on the CPU";
  if (rank.gpu.num_sharers > 1) {
    return fmt::format("it shares GPU {} with {} more of its node", rank.gpu.device->info().index,
                       rank.gpu.num_sharers - 1);
  }
  return hindering_option(options);
}

/// The first that any rank has, with the rank; empty if none has. Collective.
std::string first_hindrance(const Runtime& runtime, const std::string& own) {
  std::array<char, 320> text{};
  own.copy(text.data(), text.size() - 1);
  const auto texts = gather_values(runtime.world(), text);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank][0] != '\0') return fmt::format("rank {}: {}", rank, texts[rank].data());
  }
  return "";
}

void tell_hindrance(const Runtime& runtime, std::string_view why) {
  runtime.log().once(LogLevel::warning, "--transport nccl: rows go through the memory of hosts: {}",
                     why);
}

}  // namespace

std::string hindering_option(const Options& options) {
  if (options.wire != WireForm::exact) {
    return fmt::format("--wire {} rounds them", choice_name(options.wire));
  }
  if (options.defer > 0) return fmt::format("--defer {} leaves some to later", options.defer);
  if (options.combine == Combine::fast) return "--combine fast adds results before they go home";
  if (options.half_batches == HalfBatches::on) return "--half-batches on has two batches under way";
  return "";
}

std::shared_ptr<const NcclLibrary> load_nccl(const Options& options, std::string& reason) {
  return options.nccl ? NcclLibrary::load(reason, *options.nccl) : NcclLibrary::load(reason);
}

void require_experts_for_nccl(const Command& command) {
  if (command.options.transport != Transport::nccl) return;
  require(takes(*command.verb, *find_option("gpu-experts", command.verb)), ErrorKind::usage,
          "--transport nccl is for experts on GPUs, which {} does not have",
          verb_row(*command.verb).name);
}

void tell_unused_nccl(const Runtime& runtime) {
  if (runtime.options().transport == Transport::nccl) {
    tell_hindrance(runtime, "no experts are on GPUs (--gpu-experts)");
  }
}

GpuRoad::GpuRoad(const Runtime& runtime, const Rank& rank) {
  const Options& options = runtime.options();
  const bool is_wanted = options.transport == Transport::nccl;
  const bool is_alone = runtime.grid().experts().size() == 1;
  if (!is_wanted && !is_alone) return;
  std::string own = hindrance(options, rank, is_alone);
  if (own.empty() && !is_alone) {
    std::string reason;
    library_ = load_nccl(options, reason);
    own = reason;
  }
  const std::string hindrance = first_hindrance(runtime, own);
  if (is_alone ? own.empty() : hindrance.empty()) connect(runtime, rank);
  if (!is_wanted) return;
  if (!hindrance.empty()) {
    tell_hindrance(runtime, hindrance);
  } else if (is_alone) {
    runtime.log().once(LogLevel::info,
                       "--transport nccl: each rank has all experts: no rows travel");
  } else {
    runtime.log().once(LogLevel::info, "rows go from GPU to GPU by NCCL {} ({})",
                       library_->version_text(), library_->path());
  }
}

void GpuRoad::connect(const Runtime& runtime, const Rank& rank) {
  Communicator& experts = runtime.grid().experts();
  if (experts.size() > 1) {
    ranks_ = std::make_unique<NcclRanks>(
        NcclRanks::Setup{.library = library_,
                         .ranks = experts,
                         .device = *rank.gpu.device,
                         .deadline_seconds = static_cast<double>(runtime.options().timeout)});
  }
  road_ = std::make_unique<DeviceRoad>(*rank.work, ranks_.get());
  rank.work->road = road_.get();
}

}  // namespace moesaic
