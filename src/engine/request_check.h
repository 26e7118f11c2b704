// Whether a request may enter the engine. Nothing that passes can fail a step, or touch another request.
#pragma once

#include "base/result.h"
#include "engine/request.h"
#include "engine/router.h"

namespace rose {

inline constexpr int kChoicesMax = 128;

// Error: status 400, with the field at fault.
Result<Ok> check_request(const Request& request, const EngineLimits& limits);

}  // namespace rose
