#include "tests/launch/sparse_model.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

/// The header of the file, tensor by tensor.
class Header {
 public:
  explicit Header(bool computes) : computes_(computes) {}

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t bytes = 2;
    for (const std::int64_t size : shape) bytes *= size;
    text_ += fmt::format("{}\"{}\":{{\"dtype\":\"BF16\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                         text_.empty() ? "" : ",", name, fmt::join(shape, ","), end_, end_ + bytes);
    const bool is_norm = name.find(computes_ ? "norm" : "layernorm") != std::string::npos;
    const bool is_random = computes_ || name.find("embed_tokens") != std::string::npos ||
                           name.ends_with("gate.weight") || name.ends_with("router.layer.weight");
    fills_.push_back(is_norm ? Fill::ones : is_random ? Fill::random : Fill::none);
    ends_.push_back(end_ += bytes);
  }
  [[nodiscard]] std::string text() const { return "{" + text_ + "}"; }
  [[nodiscard]] std::int64_t data_bytes() const { return end_; }
  /// Writes norms of 1, and random bf16 below 2^-6 in place of the embedding and the routers.
  /// `file`: with room.
  void write_numbers(std::fstream& file) const {
    std::mt19937 random(1);
    std::int64_t begin = end_of_header();
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const std::int64_t end = end_of_header() + ends_[i];
      const bool is_empty = fills_[i] == Fill::none;
      std::string numbers(is_empty ? 0 : static_cast<std::size_t>(end - begin), '\0');
      for (std::size_t at = 0; at < numbers.size(); at += 2) {
        const auto bits = static_cast<unsigned>(random());
        const unsigned number = fills_[i] == Fill::ones ? 0x3f80 : 0x3c00 | (bits & 0x80ff);
        numbers[at] = static_cast<char>(number & 0xff);
        numbers[at + 1] = static_cast<char>(number >> 8);
      }
      file.seekp(begin).write(numbers.data(), static_cast<std::streamsize>(numbers.size()));
      begin = end;
    }
  }

 private:
  enum class Fill { none, ones, random };
  [[nodiscard]] std::int64_t end_of_header() const { return 8 + std::ssize(text()); }

  bool computes_;
  std::string text_;
  std::int64_t end_ = 0;
  std::vector<std::int64_t> ends_;
  std::vector<Fill> fills_;
};

void add_experts(Header& header, const SparseModel& model, const std::string& layer) {
  const auto [family, layers, hidden, experts, width, topk, vocab, routes, computes] = model;
  if (family == "granitemoe") {
    header.add(layer + "block_sparse_moe.router.layer.weight", {experts, hidden});
    header.add(layer + "block_sparse_moe.input_linear.weight", {experts, 2 * width, hidden});
    header.add(layer + "block_sparse_moe.output_linear.weight", {experts, hidden, width});
    return;
  }
  const bool is_mixtral = family == "mixtral";
  const std::string block = layer + (is_mixtral ? "block_sparse_moe." : "mlp.");
  const std::array<std::string, 3> parts =
      is_mixtral ? std::array<std::string, 3>{"w1", "w3", "w2"}
                 : std::array<std::string, 3>{"gate_proj", "up_proj", "down_proj"};
  header.add(block + "gate.weight", {experts, hidden});
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const std::string name = fmt::format("{}experts.{}.", block, expert);
    header.add(name + parts[0] + ".weight", {width, hidden});
    header.add(name + parts[1] + ".weight", {width, hidden});
    header.add(name + parts[2] + ".weight", {hidden, width});
  }
}

Header make_header(const SparseModel& model) {
  Header header(model.computes);
  const std::int64_t hidden = model.hidden;
  header.add("model.embed_tokens.weight", {model.vocab, hidden});
  header.add("model.norm.weight", {hidden});
  header.add("lm_head.weight", {model.vocab, hidden});
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}.", l);
    header.add(layer + "input_layernorm.weight", {hidden});
    header.add(layer + "post_attention_layernorm.weight", {hidden});
    for (const char* part : {"q", "k", "v", "o"}) {
      header.add(fmt::format("{}self_attn.{}_proj.weight", layer, part), {hidden, hidden});
    }
    const std::int64_t head = hidden / 8;
    if (model.family == "qwen3_moe" || model.family == "olmoe") {
      const std::int64_t width = model.family == "olmoe" ? hidden : head;
      header.add(layer + "self_attn.q_norm.weight", {width});
      header.add(layer + "self_attn.k_norm.weight", {width});
    }
    add_experts(header, model, layer);
  }
  return header;
}

std::string config_text(const SparseModel& model) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": {}, "num_hidden_layers": {},
 "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": {}, "vocab_size": {},
 "intermediate_size": {}, "moe_intermediate_size": {}, "num_experts": {}, "num_local_experts": {},
 "num_experts_per_tok": {}, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
 "tie_word_embeddings": false, "torch_dtype": "bfloat16"}})",
      model.family, model.hidden, model.layers, model.hidden / 8, model.vocab, model.width,
      model.width, model.experts, model.experts, model.topk);
}

}  // namespace

void write_sparse_model(const std::string& directory, const SparseModel& model) {
  namespace fs = std::filesystem;
  fs::create_directories(directory);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(fs::path(kDemo) / file, fs::path(directory) / file);
  }
  write_text(directory + "/config.json", config_text(model));
  const Header header = make_header(model);
  const std::string text = header.text();
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<char>(text.size() >> 8 * i & 0xff);
  }
  const std::string path = directory + "/model.safetensors";
  write_text(path, length + text);
  fs::resize_file(path, 8 + text.size() + static_cast<std::size_t>(header.data_bytes()));
  if (!model.routes && !model.computes) return;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  header.write_numbers(file);
}

}  // namespace moesaic::test
