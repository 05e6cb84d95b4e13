#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace moesaic::test {

/// A safetensors file from a header as it stands (valid or not) and its data.
[[nodiscard]] std::string safetensors_text(std::string_view header, std::string_view data);

struct TinyTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Writes a valid safetensors file. Byte i of the data is i modulo 61.
void write_tiny_safetensors(const std::string& path, const std::vector<TinyTensor>& tensors);

/// config.json of a qwen3_moe with vocabulary 8, hidden 4, 1 layer, 2 heads of 2, 2 experts of
/// width 3, top 1.
[[nodiscard]] std::string tiny_config();
/// All tensors of that model, bf16, per expert.
[[nodiscard]] std::vector<TinyTensor> tiny_tensors();
/// Both, as a directory that opens without an error.
void write_tiny_checkpoint(const std::string& directory);

/// `text` with its one `from` replaced; throws std::runtime_error unless it stands there once.
[[nodiscard]] std::string replaced(std::string text, std::string_view from, std::string_view to);

/// The message of the Error of this kind that `call` throws, without the "file:line: " of those of
/// kind internal; says so if there is none or another.
[[nodiscard]] std::string error_message(const std::function<void()>& call,
                                        ErrorKind kind = ErrorKind::file);

}  // namespace moesaic::test
