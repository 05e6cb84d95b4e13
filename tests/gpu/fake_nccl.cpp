// A libnccl.so.2 over the fake driver: rows go from GPU to GPU as files, in the order of streams,
// so that ranks may be processes or threads. As NCCL without blocking does, calls return before
// what they ask for stands in a stream: that takes a look at ncclCommGetAsyncError.
//
//   MOESAIC_FAKE_NCCL_FOLDER    where the files are, empty at the start
//   MOESAIC_FAKE_NCCL_VERSION   22809
//   MOESAIC_FAKE_NCCL_ABSENT    a rank that never joins the others
//   MOESAIC_FAKE_NCCL_SILENT    a rank whose rows never leave
//   MOESAIC_FAKE_NCCL_FAILS     a rank that NCCL reports an error to, once rows have been moved
//
// A rank that aborts leaves a file aborted.RANK.

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl_library.h"
#include "tests/gpu/fake_stream.h"

using namespace moesaic;

namespace fs = std::filesystem;

namespace {

constexpr NcclResult kInternalError = 3;
constexpr NcclResult kInvalidUsage = 5;
constexpr NcclResult kRemoteError = 6;

std::string setting(const char* name, const std::string& otherwise = "") {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : otherwise;
}

std::string file_of(const std::string& name) {
  return (fs::path(setting("MOESAIC_FAKE_NCCL_FOLDER", "/nowhere")) / name).string();
}

/// A file that others see whole or not at all.
void publish(const std::string& name, const std::vector<char>& bytes) {
  const std::string hidden = file_of(fmt::format(".{}", name));
  std::ofstream(hidden, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  fs::rename(hidden, file_of(name));
}

struct Message {
  CudaAddress at;
  std::size_t bytes;
  std::string name;
};

/// Sends and receives of one group, which are done together.
struct Group {
  std::vector<Message> sends;
  std::vector<Message> receives;
  CudaStream stream = nullptr;
};

}  // namespace

namespace moesaic {

struct NcclRanksTag {
  std::string id;
  int rank = 0;
  int size = 1;
  std::vector<std::int64_t> sent{};      // [ranks] messages to each so far
  std::vector<std::int64_t> received{};  // and from each
  Group asked{};                         // does not stand in its stream yet
  CudaStream stream = nullptr;           // where something stands
  std::shared_ptr<std::atomic<NcclResult>> error =
      std::make_shared<std::atomic<NcclResult>>(kNcclSuccess);

  [[nodiscard]] bool is(const char* which) const { return setting(which) == std::to_string(rank); }
  [[nodiscard]] bool have_all_joined() const {
    for (int other = 0; other < size; ++other) {
      if (!fs::exists(file_of(fmt::format("{}.joined.{}", id, other)))) return false;
    }
    return true;
  }
  void start_asked();
};

}  // namespace moesaic

namespace {

/// Whether it has come. A message of another size is an error, which NCCL would not notice.
bool take(const Message& message, std::atomic<NcclResult>& error) {
  const std::string path = file_of(message.name);
  if (!fs::exists(path)) return false;
  std::vector<char> bytes(fs::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  fs::remove(path);
  if (bytes.size() != message.bytes) {
    error = kInvalidUsage;
  } else {
    fake_cuda_write(message.at, bytes.data(), std::ssize(bytes));
  }
  return true;
}

}  // namespace

void NcclRanksTag::start_asked() {
  if (asked.stream == nullptr) return;
  stream = asked.stream;
  const bool is_silent = is("MOESAIC_FAKE_NCCL_SILENT");
  const bool fails = is("MOESAIC_FAKE_NCCL_FAILS");
  const auto work = [group = std::make_shared<Group>(std::move(asked)), error = error, is_silent,
                     fails] {
    for (const Message& message : group->sends) {
      std::vector<char> bytes(message.bytes);
      fake_cuda_read(message.at, bytes.data(), std::ssize(bytes));
      if (!is_silent) publish(message.name, bytes);
    }
    group->sends.clear();
    if (fails) *error = kRemoteError;
    std::erase_if(group->receives, [&](const Message& message) { return take(message, *error); });
    return group->receives.empty() && *error == kNcclSuccess;
  };
  fake_cuda_ask(stream, work);
  asked = {};
}

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = std::atoi(setting("MOESAIC_FAKE_NCCL_VERSION", "22809").c_str());
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == kRemoteError ? "remote process exited or there was a network error"
                                : "invalid usage";
}
const char* ncclGetLastError(NcclRanksHandle) {
  return "as the fake NCCL says";
}
NcclResult ncclGetUniqueId(NcclId* id) {
  static std::atomic<int> next = 0;
  const std::string name = fmt::format("{}-{}", getpid(), ++next);
  *id = {};
  name.copy(id->bytes, sizeof(id->bytes) - 1);
  return kNcclSuccess;
}
NcclResult ncclCommInitRankConfig(NcclRanksHandle* handle, int size, NcclId id, int rank,
                                  NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInternalError;
  *handle = new NcclRanksTag{.id = id.bytes, .rank = rank, .size = size};
  (*handle)->sent.resize(static_cast<std::size_t>(size));
  (*handle)->received.resize(static_cast<std::size_t>(size));
  if (!(*handle)->is("MOESAIC_FAKE_NCCL_ABSENT")) {
    publish(fmt::format("{}.joined.{}", id.bytes, rank), {});
  }
  return kNcclInProgress;
}
NcclResult ncclCommGetAsyncError(NcclRanksHandle handle, NcclResult* state) {
  handle->start_asked();
  *state = *handle->error;
  if (*state == kNcclSuccess && !handle->have_all_joined()) *state = kNcclInProgress;
  return kNcclSuccess;
}
NcclResult ncclCommFinalize(NcclRanksHandle) {
  return kNcclSuccess;
}
NcclResult ncclCommDestroy(NcclRanksHandle handle) {
  delete handle;
  return kNcclSuccess;
}
NcclResult ncclCommAbort(NcclRanksHandle handle) {
  if (handle->stream != nullptr) fake_cuda_give_up(handle->stream);
  publish(fmt::format("aborted.{}", handle->rank), {});
  delete handle;
  return kNcclSuccess;
}
NcclResult ncclGroupStart() {
  return kNcclSuccess;
}
NcclResult ncclGroupEnd() {
  return kNcclInProgress;
}

NcclResult ncclSend(const void* from, std::size_t count, int type, int peer, NcclRanksHandle handle,
                    CudaStream stream) {
  if (type != kNcclBytes || peer == handle->rank) return kInvalidUsage;
  const auto number = handle->sent[static_cast<std::size_t>(peer)]++;
  handle->asked.stream = stream;
  handle->asked.sends.push_back(
      {reinterpret_cast<CudaAddress>(from), count,
       fmt::format("{}.{}.{}.{}", handle->id, handle->rank, peer, number)});
  return kNcclSuccess;
}
NcclResult ncclRecv(void* to, std::size_t count, int type, int peer, NcclRanksHandle handle,
                    CudaStream stream) {
  if (type != kNcclBytes || peer == handle->rank) return kInvalidUsage;
  const auto number = handle->received[static_cast<std::size_t>(peer)]++;
  handle->asked.stream = stream;
  handle->asked.receives.push_back(
      {reinterpret_cast<CudaAddress>(to), count,
       fmt::format("{}.{}.{}.{}", handle->id, peer, handle->rank, number)});
  return kNcclSuccess;
}

}  // extern "C"
