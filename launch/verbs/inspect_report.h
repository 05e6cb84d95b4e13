#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "launch/job/model_facts.h"
#include "src/lora/adapter_files.h"
#include "src/model/inventory.h"
#include "src/model/model_files.h"

namespace moesaic {

/// Bytes of packed matrices by the names of their layouts.
struct PackingSummary {
  std::map<std::string, std::int64_t> experts;
  std::map<std::string, std::int64_t> others;
  std::string missing_on_gpus;  // why experts cannot be there; empty: they can
};

/// What tokenizer.json is.
struct TokenizerSummary {
  std::string kind = "none";  // "BPE"; none without the file
  /// Ids of tokens that the model has no embedding for: the ends of some tokenizers are not
  /// trained.
  std::int64_t ids_beyond = 0;
};

/// What is known of a model's directory.
struct InspectReport {
  ModelFiles files;
  ModelConfig config;
  ModelFacts facts;
  std::optional<Inventory> inventory;         // of a checkpoint
  std::optional<TokenizerSummary> tokenizer;  // unless it is broken
  std::optional<PackingSummary> packing;      // unless something is broken
  std::optional<AdapterFiles> adapter;        // of --lora
};

void print_text(const InspectReport& report);
void print_json(const InspectReport& report);

}  // namespace moesaic
