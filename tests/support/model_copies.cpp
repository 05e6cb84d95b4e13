#include "tests/support/model_copies.h"

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

void copy_model(const std::string& base, const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::filesystem::copy(std::filesystem::path(MOESAIC_TEST_DATA) / base, directory,
                        std::filesystem::copy_options::recursive);
}

void damage_tensor(const std::string& directory, const std::string& name, std::size_t count) {
  const std::string path = directory + "/model.safetensors";
  std::string bytes = read_text(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const Json tensors = Json::parse(std::string_view(bytes).substr(8, header), path);
  const auto begin =
      static_cast<std::size_t>(tensors.at(name).at("data_offsets").at(0).as_int()) + 8 + header;
  constexpr std::uint16_t kNan = 0x7fc0;
  for (std::size_t i = 0; i < count; ++i) std::memcpy(&bytes[begin + 2 * i], &kNan, 2);
  write_text(path, bytes);
}

}  // namespace moesaic::test
