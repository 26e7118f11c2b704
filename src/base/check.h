// CHECK: our own mistakes end the process, with the values that show why. A caller's mistake is a Result (result.h).
#pragma once

#include <fmt/format.h>

namespace rose {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace rose

// CHECK(rows > 0);  CHECK(rows <= rows_max, "{} rows do not fit {}", rows, rows_max);
#define CHECK(condition, ...)             \
  (static_cast<bool>(condition) ? void(0) \
                                : ::rose::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)))
#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false && (condition))
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
