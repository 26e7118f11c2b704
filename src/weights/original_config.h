// The original layout's config.json in the keys of the published one.
#pragma once

#include <string>

#include "json/json.h"

namespace rose {

bool is_original_config(const json::Object& config);  // "num_experts" instead of "model_type"

// `path` for error texts. Throws StartError naming a key that is missing or no number.
json::Object published_config(const json::Object& original, const std::string& path);

}  // namespace rose
