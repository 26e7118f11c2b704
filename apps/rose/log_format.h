// How the process log looks: lines of text for people, or JSON lines for whatever collects logs.
#pragma once

#include <string>

#include "base/log.h"

namespace rose {

// A record as one line: {"time":"2026-11-30T07:12:01.123Z","level":"info","message":"..."}. Bytes of the message that
// are not UTF-8 become U+FFFD, so that the line is valid JSON whatever was logged.
std::string json_line(const spdlog::details::log_msg& record);

// Of the process log, from now on.
void log_as_text();
void log_as_json();

}  // namespace rose
