// Where the embedded model lies.
#pragma once

#include <string>

namespace rose {

// models/NAME beside the binary (a `make dist` folder), or in the source tree that built it. Throws StartError naming
// the places looked at.
std::string embedded_model_path(const std::string& name);
inline std::string default_model_path() { return embedded_model_path("rose-tiny"); }

}  // namespace rose
