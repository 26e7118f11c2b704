// JSON on Boost.JSON with what a server must add: limits on size and depth, duplicate keys refused, exact numbers, the
// byte offset in every error.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rose::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;
using boost::json::serialize;

struct Limits {
  std::size_t bytes_max = 64u << 20;
  int depth_max = 64;
  std::size_t object_keys_max = 1u << 20;  // of one object
};

// Errors: 400 with text such as "invalid JSON at byte 17: duplicate key \"model\""; 413 above bytes_max. Key order is
// kept. Integers that fit are int64 or uint64, other numbers the nearest double (one too large for a double is refused,
// one too small is 0). Lone surrogate escapes, invalid UTF-8, comments, trailing commas, NaN and Infinity are refused.
// O(n log n) at worst.
Result<Value> parse(std::string_view text, const Limits& limits = {});

}  // namespace rose::json
