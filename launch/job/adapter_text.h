#pragma once

#include <span>
#include <string>

#include "src/lora/adapter_files.h"

namespace moesaic {

/// "12,352: attention 4,160, experts 8,192": numbers that training changes, by kind.
[[nodiscard]] std::string trainable_text(std::span<const AdapterSpec> adapters);
/// "rank 8, scale 2, layout transformers4, numbers 12,352: ...".
[[nodiscard]] std::string adapter_text(std::span<const AdapterSpec> adapters, AdapterLayout layout);
/// What is known of an adapter of files, as a JSON object.
[[nodiscard]] std::string adapter_json(const AdapterFiles& adapter);

}  // namespace moesaic
