#include "launch/study/smpi_trace.h"

#include <fmt/core.h>

#include <algorithm>

namespace moesaic {
namespace {

constexpr double kOperationsPerSecond = 1e9;
/// Of what takes no time.
constexpr double kFastest = 1e15;

double bytes_per_second(double seconds_per_byte) {
  return seconds_per_byte > 0 ? std::min(kFastest, 1 / seconds_per_byte) : kFastest;
}

/// Writes a rank's trace.
class TraceWriter {
 public:
  TraceWriter(const CostRanks& ranks, int rank) : ranks_(ranks), rank_(rank) { line("init"); }

  void compute(double seconds) {
    if (seconds > 0) line(fmt::format("compute {:.0f}", seconds * kOperationsPerSecond));
  }

  /// All ranks' messages of one way; `bytes` of a rank to a node.
  template <typename Bytes>
  void exchange(int nodes, const Bytes& bytes) {
    for (int sender = 0; sender < ranks_.sharers(); ++sender) {
      const bool is_here = node_of(sender) == node_of(rank_);
      if (receiver(sender, node_of(rank_)) != rank_ || sender == rank_) continue;
      if (!is_here || bytes(sender, node_of(rank_)) >= 1)
        line(fmt::format("irecv {} 0 {:.0f}", sender, bytes(sender, node_of(rank_))));
    }
    for (int node = 0; node < nodes; ++node) {
      const int to = receiver(rank_, node);
      if (to == rank_) continue;
      if (node != node_of(rank_) || bytes(rank_, node) >= 1)
        line(fmt::format("isend {} 0 {:.0f}", to, bytes(rank_, node)));
    }
    line("waitall");
  }

  [[nodiscard]] std::string end() {
    line("finalize");
    return std::move(text_);
  }

 private:
  void line(std::string_view action) { text_ += fmt::format("{} {}\n", rank_, action); }
  [[nodiscard]] int node_of(int rank) const { return rank / ranks_.near_ranks(); }

  /// Who takes what `rank` sends to `node`: the one in the same place there; in its own node the
  /// next one.
  [[nodiscard]] int receiver(int rank, int node) const {
    const int first = node * ranks_.near_ranks();
    const int count = std::min(first + ranks_.near_ranks(), ranks_.sharers()) - first;
    const int place = rank % ranks_.near_ranks() + (node == node_of(rank) ? 1 : 0);
    return first + place % count;
  }

  const CostRanks& ranks_;
  int rank_;
  std::string text_;
};

}  // namespace

std::string smpi_trace(const SmpiPass& pass, const SmpiRates& rates, int rank) {
  TraceWriter writer(pass.ranks, rank);
  for (const LayerMessages& layer : pass.messages.layers) {
    const double far_messages = 2 * (layer.nodes - 1);  // there and back
    const double handling =
        layer.near_messages * rates.near_message + far_messages * rates.far_message;
    writer.compute(pass.layer_seconds + handling / 2);
    writer.exchange(layer.nodes, [&](int from, int node) { return layer.of(from, node).there; });
    writer.compute(handling / 2);
    writer.exchange(layer.nodes, [&](int from, int node) { return layer.of(from, node).back; });
  }
  return writer.end();
}

std::string smpi_platform(const CostRanks& ranks, const SmpiRates& rates) {
  return fmt::format(
      "<?xml version='1.0'?>\n"
      "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
      "<platform version=\"4.1\">\n"
      "  <cluster id=\"nodes\" prefix=\"node-\" suffix=\"\" radical=\"0-{}\" speed=\"1Gf\" "
      "core=\"{}\"\n"
      "           bw=\"{:.6g}Bps\" lat=\"0s\" sharing_policy=\"SPLITDUPLEX\"\n"
      "           loopback_bw=\"{:.6g}Bps\" loopback_lat=\"0s\"/>\n"
      "</platform>\n",
      ranks.sharer_nodes() - 1, std::min(ranks.ranks, ranks.near_ranks()),
      bytes_per_second(rates.far_byte), bytes_per_second(rates.near_byte));
}

std::string smpi_hosts(const CostRanks& ranks) {
  std::string text;
  for (int rank = 0; rank < ranks.sharers(); ++rank) {
    text += fmt::format("node-{}\n", rank / ranks.near_ranks());
  }
  return text;
}

std::string smpi_script(const CostRanks& ranks) {
  return fmt::format(
      "#!/bin/sh\n"
      "# Replays the traces of this folder (SimGrid 3.32), and tells the simulated seconds.\n"
      "cd \"$(dirname \"$0\")\" || exit 1\n"
      "exec smpirun -np {} -platform platform.xml -hostfile hosts -replay traces \\\n"
      "  --cfg=smpi/host-speed:1Gf --cfg=smpi/display-timing:yes \\\n"
      "  --cfg=smpi/bw-factor:0:1 --cfg=smpi/lat-factor:0:1 \\\n"
      "  --cfg=network/weight-S:0 --cfg=network/crosstraffic:0 --cfg=network/TCP-gamma:0 \"$@\"\n",
      ranks.sharers());
}

}  // namespace moesaic
