// The process log (spdlog, stderr). Levels: info for what an operator wants to see once, warn for what they should act
// on. Prompt text is never logged.
#pragma once

#include <spdlog/spdlog.h>
