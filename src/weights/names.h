// How the two published layouts name and shape the tensors of one SourcePart.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rose {

enum class CheckpointLayout {
  kPublished,  // "model.layers.3.self_attn.q_proj.weight"
  kOriginal,   // "block.3.attn.qkv.weight": q, k and v are one tensor
};

// Where the original layout keeps a published tensor.
struct OriginalName {
  std::string weight;  // without ".blocks" / ".scales" for experts
  std::string bias;
  // For q, k, v: the part's place in the fused tensor, 0, 1 or 2; -1 for a tensor of its own.
  int fused = -1;
};

// `part` is SourcePart::tensor, a published name without its suffix; none for a name that the layout does not know.
std::optional<OriginalName> original_name(std::string_view part);

}  // namespace rose
