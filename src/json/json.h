// JSON on Boost.JSON with what a server must add: limits on size and depth, duplicate keys refused, the byte offset in
// every error.
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
};

// Errors: 400 with text such as "invalid JSON at byte 17: duplicate key \"model\"". Key order is kept. Numbers beyond
// 64 bits become doubles. Lone surrogate escapes are refused.
Result<Value> parse(std::string_view text, const Limits& limits = {});

}  // namespace rose::json
