#include "tests/support/checkpoint_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "tests/support/temporary_directory.h"

namespace moesaic::test {

std::string safetensors_text(std::string_view header, std::string_view data) {
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text.append(header).append(data);
}

void write_tiny_safetensors(const std::string& path, const std::vector<TinyTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const TinyTensor& tensor : tensors) {
    std::int64_t bytes = dtype_bytes(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= size;
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          tensor.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                          data.size(), data.size() + static_cast<std::size_t>(bytes));
    for (std::int64_t i = 0; i < bytes; ++i) data += static_cast<char>(data.size() % 61);
  }
  write_text(path, safetensors_text(header + "}", data));
}

std::string tiny_config() {
  return R"({"model_type": "qwen3_moe", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1,
"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "num_experts": 2,
"num_experts_per_tok": 1, "moe_intermediate_size": 3, "intermediate_size": 6,
"rope_theta": 10000.0, "max_position_embeddings": 64, "norm_topk_prob": true})";
}

std::vector<TinyTensor> tiny_tensors() {
  std::vector<TinyTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensors.push_back({name, DType::bf16, std::move(shape)});
  };
  add("model.embed_tokens.weight", {8, 4});
  const std::string layer = "model.layers.0.";
  add(layer + "input_layernorm.weight", {4});
  add(layer + "post_attention_layernorm.weight", {4});
  add(layer + "self_attn.q_proj.weight", {4, 4});
  add(layer + "self_attn.k_proj.weight", {2, 4});
  add(layer + "self_attn.v_proj.weight", {2, 4});
  add(layer + "self_attn.o_proj.weight", {4, 4});
  add(layer + "self_attn.q_norm.weight", {2});
  add(layer + "self_attn.k_norm.weight", {2});
  add(layer + "mlp.gate.weight", {2, 4});
  for (const std::string expert : {"0", "1"}) {
    add(layer + "mlp.experts." + expert + ".gate_proj.weight", {3, 4});
    add(layer + "mlp.experts." + expert + ".up_proj.weight", {3, 4});
    add(layer + "mlp.experts." + expert + ".down_proj.weight", {4, 3});
  }
  add("model.norm.weight", {4});
  add("lm_head.weight", {8, 4});
  return tensors;
}

void write_tiny_checkpoint(const std::string& directory) {
  write_text(directory + "/config.json", tiny_config());
  write_tiny_safetensors(directory + "/model.safetensors", tiny_tensors());
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) {
    throw std::runtime_error(fmt::format("\"{}\" does not stand once in: {}", from, text));
  }
  return text.replace(at, from.size(), to);
}

std::string error_message(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.kind() != kind) return "another kind: " + message;
    return kind == ErrorKind::internal ? message.substr(message.find(": ") + 2) : message;
  }
  return "no error";
}

}  // namespace moesaic::test
