#include "server/openai/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/random.h"

namespace rose::openai {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> matched;
};

// The oracle looks at the whole text at once.
Outcome whole(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const std::string& stop : stops) {
      if (text.compare(at, stop.size(), stop) == 0) return {text.substr(0, at), stop};
    }
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AnySplitShowsWhatTheWholeTextShows) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::uint64_t counter = 0;
    const auto draw = [&](std::uint64_t below) { return random_bits(seed, counter++) % below; };
    std::vector<std::string> stops(1 + draw(3));
    for (std::string& stop : stops) {
      for (std::uint64_t i = 0, size = 1 + draw(4); i < size; ++i) stop += static_cast<char>('a' + draw(2));
    }
    std::string text;
    for (std::uint64_t i = 0, size = draw(20); i < size; ++i) text += static_cast<char>('a' + draw(3));
    StopMatcher matcher(stops, false);
    std::string out, fed;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + draw(3);
      fed += text.substr(at, size);
      matcher.feed(text.substr(at, size), out);
      at += size;
      // What is out must be right whatever follows: the oracle's text begins with it.
      EXPECT_EQ(whole(stops, fed).text.substr(0, out.size()), out) << seed;
      EXPECT_EQ(matcher.matched().has_value(), whole(stops, fed).matched.has_value()) << seed;
      if (matcher.matched()) break;
    }
    matcher.flush(out);
    EXPECT_EQ(out, whole(stops, fed).text) << "seed " << seed;
  }
}

TEST(StopMatcher, NothingIsHeldBackThatCannotBecomeAStop) {
  StopMatcher matcher({"</run>"}, false);
  std::string out;
  matcher.feed("do it</r", out);
  EXPECT_EQ(out, "do it");
  matcher.feed("x", out);
  EXPECT_EQ(out, "do it</rx");
  matcher.feed("</ru", out);
  matcher.feed("n>tail", out);
  EXPECT_EQ(out, "do it</rx");
  EXPECT_EQ(matcher.matched(), "</run>");
}

TEST(StopMatcher, TheStopStaysInTheTextIfWished) {
  StopMatcher matcher({"END"}, true);
  std::string out;
  matcher.feed("aEN", out);
  matcher.feed("Db", out);
  EXPECT_EQ(out, "aEND");
}

}  // namespace
}  // namespace rose::openai
