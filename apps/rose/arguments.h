// The command line as other engines' users write it, brought to the form that this program parses.
#pragma once

#include <string>
#include <vector>

namespace rose {

struct Arguments {
  std::vector<std::string> words;    // without the program's name
  std::vector<std::string> ignored;  // flags that mean nothing here, dropped with their values
};

// Underscores in option names become dashes; -tp, -ep become --tp, --ep; vLLM's spellings of what exists here are
// renamed; its flags that have no meaning here are dropped, so that a vLLM command line starts rose.
Arguments normalized(const std::vector<std::string>& words);

// "128K", "1M", "4096" or "auto" (0) as a number of tokens, in decimal; "" for anything else. K is 1024.
std::string token_count(const std::string& text);

}  // namespace rose
