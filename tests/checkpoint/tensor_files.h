#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/safetensors_writer.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// A tensor with its data, to be written to a checkpoint.
struct TensorData {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

template <typename T>
TensorData tensor(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                  const std::vector<T>& elements) {
  TensorData data{{name, dtype, std::move(shape)}, {}};
  data.bytes.resize(elements.size() * sizeof(T));
  if (!elements.empty()) std::memcpy(data.bytes.data(), elements.data(), data.bytes.size());
  return data;
}

/// `quantization` is the value of quantization_config; empty: there is none.
inline Checkpoint write_checkpoint(const TemporaryDirectory& directory,
                                   const std::string& quantization,
                                   const std::vector<TensorData>& tensors) {
  write_text(directory.path_of("config.json"),
             quantization.empty() ? "{}" : R"({"quantization_config": )" + quantization + "}");
  std::vector<TensorSpec> specs;
  for (const TensorData& data : tensors) specs.push_back(data.spec);
  SafetensorsWriter writer(directory.path_of("model.safetensors"), specs);
  for (const TensorData& data : tensors) writer.write(data.spec.name, 0, data.bytes);
  writer.finish();
  return Checkpoint::open(directory.path());
}

}  // namespace moesaic::test
