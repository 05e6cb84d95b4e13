#include "tests/launch/broken_models.h"

#include <cstdint>
#include <filesystem>
#include <stdexcept>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

using Edit = std::function<std::string(std::string)>;

void edit_file(const std::string& path, const Edit& edit) {
  write_text(path, edit(read_text(path)));
}

/// An edit of one file: `from`, which stands there once, becomes `to`.
std::function<void(const std::string&)> replacing(std::string file, std::string from,
                                                  std::string to) {
  return [=](const std::string& directory) {
    edit_file(directory + "/" + file,
              [&](std::string text) { return replaced(std::move(text), from, to); });
  };
}

/// An edit of the JSON header of model.safetensors.
std::function<void(const std::string&)> editing_header(const Edit& edit) {
  return [=](const std::string& directory) {
    edit_file(directory + "/model.safetensors", [&](const std::string& text) {
      std::uint64_t length = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        length |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
      }
      return safetensors_text(edit(text.substr(8, length)), text.substr(8 + length));
    });
  };
}

const std::string kTensor = "\"model.layers.0.mlp.experts.0.down_proj.weight\":";

/// The entry of one tensor, from its name on, with `from` become `to`.
Edit in_tensor(const std::string& from, const std::string& to) {
  return [=](std::string header) {
    const std::size_t name = header.find(kTensor);
    const std::size_t at = header.find(from, name);
    if (name == std::string::npos || at == std::string::npos) {
      throw std::runtime_error("no " + from + " in the header");
    }
    return header.replace(at, from.size(), to);
  };
}

/// Moves the data of kTensor.
std::string shift_offsets(std::string header, std::int64_t bytes) {
  const std::string key = "\"data_offsets\":[";
  const std::size_t first = header.find(key, header.find(kTensor)) + key.size();
  const std::size_t comma = header.find(',', first);
  const std::size_t end = header.find(']', first);
  const std::int64_t from = std::stoll(header.substr(first, comma - first));
  const std::int64_t to = std::stoll(header.substr(comma + 1, end - comma - 1));
  return header.replace(first, end - first,
                        std::to_string(from + bytes) + "," + std::to_string(to + bytes));
}

std::function<void(const std::string&)> cutting(const std::string& file, std::int64_t bytes) {
  return [=](const std::string& directory) {
    const std::string path = directory + "/" + file;
    fs::resize_file(path, bytes >= 0 ? static_cast<std::uintmax_t>(bytes)
                                     : fs::file_size(path) + static_cast<std::uintmax_t>(bytes));
  };
}

std::function<void(const std::string&)> removing(const std::string& file) {
  return [=](const std::string& directory) { fs::remove(directory + "/" + file); };
}

const std::string kSharded = "models/qwen3_moe-v4-yarn-window-sharded";
const std::string kShard = "model-00002-of-00004.safetensors";

std::function<void(const std::string&)> writing(const std::string& file, const std::string& text) {
  return [=](const std::string& directory) { write_text(directory + "/" + file, text); };
}

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 123456789\n";

/// What downloads leave that went wrong.
std::vector<BrokenModel> make_downloads() {
  const std::string weights = "model.safetensors";
  const auto unfinished = [](const std::string& name) {
    return [=](const std::string& directory) {
      fs::remove(directory + "/" + kShard);
      fs::create_directories(fs::path(directory + "/" + name).parent_path());
      write_text(directory + "/" + name, "half");
    };
  };
  return {
      {"WeightsAreAPointer", writing(weights, kPointer), 3, {weights + ": a Git LFS pointer"}},
      {"ConfigIsAPointer", writing("config.json", kPointer), 3, {"config.json: a Git LFS pointer"}},
      {"WeightsAreAWebPage",
       writing(weights, "<!doctype html><html><body>Please log in</body></html>"),
       3,
       {weights + ": a web page"}},
      {"WeightsAreAnAnswer",
       writing(weights, "Access to model is restricted"),
       3,
       {weights + ": a text", "\"Access to model is restricted\""}},
      {"WeightsAreGguf", writing(weights, std::string("GGUF\x03\0\0\0...", 11)), 3, {"GGUF"}},
      {"WeightsAreAZip", writing(weights, "PK\x03\x04-----------"), 3, {"zip archive"}},
      {"ShardIsUnderWay",
       unfinished(kShard + ".incomplete"),
       3,
       {kShard + " is missing", "not finished", kShard + ".incomplete"},
       kSharded},
      {"ShardIsUnderWayElsewhere",
       unfinished(".cache/huggingface/download/ab.incomplete"),
       3,
       {kShard + " is missing", "not finished", "ab.incomplete"},
       kSharded},
      {"CacheOfHuggingFace",
       [](const std::string& d) {
         fs::remove_all(d);
         fs::create_directories(d + "/snapshots/0123");
       },
       3,
       {"no config.json", "snapshots"}},
  };
}

std::vector<BrokenModel> make_all() {
  return {
      {"ConfigIsHuge",
       [](const std::string& d) { fs::resize_file(d + "/config.json", 200'000'000); },
       3,
       {"config.json: 200000000 bytes, at most 16777216"}},
      {"TokenizerIsHuge",
       [](const std::string& d) { fs::resize_file(d + "/tokenizer.json", 200'000'000); },
       3,
       {"tokenizer.json: 200000000 bytes, at most 134217728"}},
      {"ConfigLeadsInACircle",
       [](const std::string& d) {
         fs::remove(d + "/generation_config.json");
         fs::create_symlink("generation_config.json", d + "/generation_config.json");
       },
       3,
       {"generation_config.json: Too many levels"}},
      {"TokenizerIsADevice",
       [](const std::string& d) {
         fs::remove(d + "/tokenizer.json");
         fs::create_symlink("/dev/zero", d + "/tokenizer.json");
       },
       3,
       {"tokenizer.json: not a regular file"}},
      {"NoDirectory", [](const std::string& d) { fs::remove_all(d); }, 3, {"no such directory"}},
      {"NoConfig", removing("config.json"), 3, {"not a checkpoint", "config.json"}},
      {"NoWeights", removing("model.safetensors"), 3, {"not a checkpoint", "model.safetensors"}},
      {"ConfigIsNotJson", cutting("config.json", 100), 3, {"config.json", "not valid JSON"}},
      {"UnknownFamily",
       replacing("config.json", "\"qwen3_moe\"", "\"gpt5_moe\""),
       3,
       {"model_type", "gpt5_moe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe"}},
      {"FieldMissing",
       replacing("config.json", "\"hidden_size\":", "\"hidden_sise\":"),
       3,
       {"config.json", "hidden_size", "missing"}},
      {"FieldOfWrongType",
       replacing("config.json", "\"hidden_size\":", "\"hidden_size\": \"wide\", \"other\":"),
       3,
       {"config.json", "hidden_size", "wide"}},
      {"ShardMissing", removing(kShard), 3, {kShard, "missing"}, kSharded},
      {"ShardCut", cutting(kShard, -1000), 3, {kShard, "cut short"}, kSharded},
      {"IndexNamesNoSuchTensor",
       replacing("model.safetensors.index.json", "\"lm_head.weight\"", "\"lm_heat.weight\""),
       3,
       {"lm_heat.weight"},
       kSharded},
      {"FileCut", cutting("model.safetensors", -1), 3, {"model.safetensors", "cut short"}},
      {"FileEmpty", cutting("model.safetensors", 0), 3, {"model.safetensors", "0 bytes"}},
      {"HeaderTooLarge",
       [](const std::string& directory) {
         edit_file(directory + "/model.safetensors", [](std::string text) {
           return text.replace(0, 8, std::string("\xff\xff\xff\xff\xff\x00\x00\x00", 8));
         });
       },
       3,
       {"model.safetensors", "header of 1099511627775 bytes"}},
      {"OffsetsOverlap",
       editing_header([](std::string header) { return shift_offsets(std::move(header), -16); }),
       3,
       {"model.layers.0.mlp.experts.0.down_proj.weight", "inside the tensor before it"}},
      {"OffsetsOutOfRange",
       editing_header([](std::string header) {
         return shift_offsets(std::move(header), std::int64_t{1} << 40);
       }),
       3,
       {"model.safetensors", "belong to no tensor"}},
      {"NameTwice",
       editing_header([](std::string header) {
         return replaced(std::move(header),
                         "\"model.layers.0.mlp.experts.1.down_proj.weight\":", kTensor);
       }),
       3,
       {"model.layers.0.mlp.experts.0.down_proj.weight"}},
      {"WrongShape",
       editing_header(in_tensor("[192,64]", "[64,192]")),
       3,
       {"model.layers.0.mlp.experts.0.down_proj.weight", "[64, 192]", "[192, 64]"}},
      {"WrongDtype",
       editing_header(in_tensor("\"BF16\"", "\"I16\"")),
       3,
       {"model.layers.0.mlp.experts.0.down_proj.weight", "I16"}},
      {"TensorMissing",
       editing_header([](std::string header) {
         return replaced(std::move(header), kTensor, "\"model.layers.0.other\":");
       }),
       3,
       {"model.layers.0.mlp.experts.0.down_proj.weight", "missing"}},
      {"NoTokenizer", removing("tokenizer.json"), 3, {"tokenizer.json", "no such file"}},
      {"TokenizerIsNotBpe",
       replacing("tokenizer.json", "\"type\": \"BPE\"", "\"type\": \"Unigram\""),
       3,
       {"tokenizer.json", "Unigram", "BPE"}},
  };
}

}  // namespace

const std::vector<BrokenModel>& broken_models() {
  static const std::vector<BrokenModel> all = [] {
    std::vector<BrokenModel> models = make_all();
    for (BrokenModel& download : make_downloads()) models.push_back(std::move(download));
    return models;
  }();
  return all;
}

}  // namespace moesaic::test
