// "Did you mean": the nearest known word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rose {

// The word of `known` with the fewest edits to `word`; empty when even that is far off (more than a third of the
// letters).
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace rose
