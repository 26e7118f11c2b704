#include "log_format.h"

#include <fmt/chrono.h>
#include <spdlog/formatter.h>

#include <boost/json.hpp>
#include <chrono>
#include <memory>

#include "tokenizer/utf8.h"

namespace rose {
namespace {

// UTC in milliseconds: collectors sort by it across time zones.
std::string utc(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)), ms);
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& record, spdlog::memory_buf_t& to) override {
    const std::string line = json_line(record) + "\n";
    to.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

std::string json_line(const spdlog::details::log_msg& record) {
  const spdlog::string_view_t level = spdlog::level::to_string_view(record.level);
  return boost::json::serialize(boost::json::object{
      {"time", utc(record.time)},
      {"level", std::string_view(level.data(), level.size())},
      {"message", valid_utf8({record.payload.data(), record.payload.size()})},
  });
}

void log_as_text() { spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v"); }

void log_as_json() { spdlog::set_formatter(std::make_unique<JsonFormatter>()); }

}  // namespace rose
