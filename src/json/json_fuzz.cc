// Any bytes: no crash; what is accepted is accepted by Boost.JSON too and survives a round trip; what Boost accepts and
// we refuse is one of the refusals we add.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace rose;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto ours = json::parse(text, {.depth_max = 32});
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::json::error_code ec;
  const auto theirs = boost::json::parse(boost::json::string_view(text.data(), size), ec, {}, options);
  if (ours.ok()) {
    CHECK(!ec, "accepted what Boost refuses: {}", ec.message());
    const std::string once = json::serialize(*ours);
    const auto again = json::parse(once);
    CHECK(again.ok(), "{}", again.error().message);
    CHECK(json::serialize(*again) == once);
  } else if (!ec) {
    const std::string& message = ours.error().message;
    CHECK(message.find("duplicate key") != std::string::npos || message.find("out of range") != std::string::npos,
          "refused what Boost accepts: {}", message);
  }
  return 0;
}
