#include "launch/plan/planned_model.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/directory.h"
#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The configuration that --model is, or has no weights beside it; nothing: there are weights, or
/// there is nothing.
std::optional<std::string> lone_config(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  const fs::path directory(path);
  const std::string config = (directory / "config.json").string();
  if (!file_exists(config) || PackedDirectory::is_one(path)) return std::nullopt;
  for (const fs::directory_entry& entry : entries_of(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors") != std::string::npos) return std::nullopt;
  }
  return config;
}

DType dtype_of(const Json& config) {
  for (const std::string_view field : {"dtype", "torch_dtype"}) {
    const auto found = config.find(field);
    if (!found) continue;
    const std::string name = found->as_string();
    if (name == "bfloat16") return DType::bf16;
    if (name == "float16") return DType::f16;
    if (name == "float32") return DType::f32;
    fail(ErrorKind::file, "{}: expected bfloat16, float16 or float32, found {}", found->where(),
         json_quote(name));
  }
  return DType::bf16;  // as nearly all are
}

/// Layouts of a quantised checkpoint follow from its tensors.
void require_known_layouts(const Json& config, const Options& options) {
  for (const std::string_view field : {"quantization_config", "compression_config"}) {
    const auto found = config.find(field);
    if (!found) continue;
    require(options.expert_format && options.dense_format, ErrorKind::usage,
            "{}: the weights are quantised, and are not here: --expert-format and --dense-format "
            "say as what to count them",
            found->where());
  }
}

}  // namespace

PlannedModel open_planned_model(const Options& options) {
  const std::optional<std::string> path = lone_config(options.model);
  if (!path) return {open_model(options), "the headers of the model"};
  const Json json = Json::read_file(*path, kMaxConfigBytes);
  require_known_layouts(json, options);
  ModelConfig config = parse_model_config(json, std::nullopt);
  const DType dtype = dtype_of(json);
  const std::string directory = fs::path(*path).parent_path().string();
  ModelFiles files = ModelFiles::described(directory.empty() ? "." : directory, config, dtype);
  return {open_model(options, std::move(files), std::move(config)),
          fmt::format("{} alone: all weights in {}, unless options say otherwise", *path,
                      dtype_name(dtype)),
          false};
}

}  // namespace moesaic
