#include "arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "suggest.h"

namespace rose {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Arguments, AVllmCommandLineBecomesOurs) {
  const Arguments a =
      normalized({"serve", "models/x_y", "--max_model_len=4096", "-tp", "2", "--trust-remote-code", "--dtype", "auto",
                  "--reasoning-parser=openai", "--no_enable_prefix_caching", "--port", "1"});
  EXPECT_THAT(a.words, ElementsAre("serve", "models/x_y", "--max-model-len=4096", "--tp", "2", "--no-prefix-cache",
                                   "--port", "1"));
  EXPECT_THAT(a.ignored, ElementsAre("--trust-remote-code", "--dtype", "--reasoning-parser"));
}

TEST(Arguments, WhatFollowsTwoDashesIsLeftAlone) {
  const Arguments a = normalized({"generate", "--", "--trust_remote_code"});
  EXPECT_THAT(a.words, ElementsAre("generate", "--", "--trust_remote_code"));
  EXPECT_THAT(a.ignored, IsEmpty());
}

TEST(TokenCount, ReadsSuffixesAndRefusesTheRest) {
  EXPECT_EQ(token_count("128K"), "131072");
  EXPECT_EQ(token_count("1m"), "1048576");
  EXPECT_EQ(token_count("4096"), "4096");
  EXPECT_EQ(token_count("auto"), "0");
  for (const char* bad : {"", "K", "-1", "1.5K", "12X", "99999999999999999999", "18446744073709551615K"}) {
    EXPECT_EQ(token_count(bad), "") << bad;
  }
}

TEST(NearestWord, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> known = {"--port", "--host", "--max-context"};
  EXPECT_EQ(nearest_word("--prot", known), "--port");
  EXPECT_EQ(nearest_word("--max-contxt", known), "--max-context");
  EXPECT_EQ(nearest_word("--completely-else", known), "");
}

}  // namespace
}  // namespace rose
