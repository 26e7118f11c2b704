#include "log_format.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>

namespace rose {
namespace {

boost::json::object parsed(spdlog::level::level_enum level, std::string_view message) {
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1764486721007)};
  const spdlog::details::log_msg record(time, {}, "log", level, message);
  const std::string line = json_line(record);
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return boost::json::parse(line).as_object();
}

TEST(LogFormat, ARecordIsALineOfJson) {
  const auto line = parsed(spdlog::level::warn, "a \"quoted\" path\nwith a second line");
  EXPECT_EQ(line.at("time").as_string(), "2025-11-30T07:12:01.007Z");
  EXPECT_EQ(line.at("level").as_string(), "warning");
  EXPECT_EQ(line.at("message").as_string(), "a \"quoted\" path\nwith a second line");
}

TEST(LogFormat, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(parsed(spdlog::level::info, "GET /\xff\xc3 200").at("message").as_string(),
            "GET /\xef\xbf\xbd\xef\xbf\xbd 200");
  EXPECT_EQ(parsed(spdlog::level::info, "gr\xc3\xbc\xc3\x9f").at("message").as_string(), "gr\xc3\xbc\xc3\x9f");
}

}  // namespace
}  // namespace rose
