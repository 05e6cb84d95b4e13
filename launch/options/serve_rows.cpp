#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::string_view kServer = "Server";

constexpr std::array kRows = {
    OptionRow{"host", '\0', "ADDRESS", &O::host, kServer, verbs::kServe,
              "where rank 0 listens: a name or an address of its machine; 0.0.0.0: on all of them"},
    OptionRow{"port", '\0', "N", &O::port, kServer, verbs::kServe, "0: one that is free", 0, 65535},
    OptionRow{.name = "api-key-file",
              .value = "FILE",
              .field = &O::api_key_file,
              .group = kServer,
              .verbs = verbs::kServe,
              .help = "ask clients for the key that is the first line of FILE: Authorization: "
                      "Bearer KEY; all but /health",
              .may_differ = true},
    OptionRow{.name = "model-name",
              .value = "NAME",
              .field = &O::model_name,
              .group = kServer,
              .verbs = verbs::kServe,
              .help = "what clients call the model; without it the name of its directory",
              .may_differ = true},
    OptionRow{
        "max-waiting", '\0', "N", &O::max_waiting, kServer, verbs::kServe,
        "most texts that wait for a rank, also of one call, besides one for each place of the "
        "ranks; more are refused with status 503",
        1, 1e6},
    OptionRow{"max-time", '\0', "TIME", &O::max_time, kServer, verbs::kServe,
              "end after so long, such as 50m or 8h; so do SIGINT, SIGTERM and SIGUSR1"},
};

}  // namespace

std::span<const OptionRow> serve_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
