// The chat format of gpt-oss (spec: harmony.md 2 and 3).
//
// Choices, where the spec leaves room or the sources disagree:
//  - The first system or developer message that stands before everything else becomes the leading developer message,
//  with
//    the tools and the response format; each further one is a developer message of its own, where it stands.
//  - Reasoning before the last final answer is dropped. An answer that is being continued is no last answer yet.
//  - tool_choice none and an allowed subset leave the other tools out of the prompt; calls of them are not reported.
//  - A forced call (one named tool, or required with one candidate) is prefilled up to its <|message|>. Required with
//  several
//    prefills "<|channel|>commentary to=functions"; constraint() says how the header may go on.
//  - Results follow calls by id; an id used twice means the later call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "chat/harmony/parser.h"
#include "chat/harmony/render.h"

namespace rose {

class Harmony final : public ChatFormat {
 public:
  // Throws StartError if the tokenizer lacks one of the special tokens.
  Harmony(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& generation_stop_tokens,
          const harmony::RenderStyle& style = harmony::kServedStyle);

  std::string_view name() const override { return "harmony"; }
  Result<std::vector<TokenId>> render(const Conversation& conversation) const override;
  std::unique_ptr<ChatParser> parser(const Conversation& conversation) const override;
  std::shared_ptr<const HeaderConstraint> constraint(const Conversation& conversation) const override;
  const std::vector<TokenId>& stop_tokens() const override { return stop_tokens_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  harmony::Renderer renderer_;
  std::vector<TokenId> stop_tokens_;
};

namespace harmony {

// The messages of a prompt, unfiltered, without the generation prompt. Errors: 400, `param` such as
// "messages[3].tool_call_id".
Result<std::vector<HarmonyMessage>> prompt_messages(const Conversation& conversation);

// The names a call may have, in the order of the tools; empty if no call may be made.
std::vector<std::string> callable_names(const Conversation& conversation);

}  // namespace harmony
}  // namespace rose
