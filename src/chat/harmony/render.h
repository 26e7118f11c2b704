// Harmony messages to token ids. Only this file makes special ids; all text is encoded as ordinary text (spec:
// harmony.md 1.5, 2.1, 2.7).
#pragma once

#include <span>
#include <vector>

#include "chat/harmony/message.h"
#include "chat/harmony/schema_text.h"
#include "chat/harmony/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace rose::harmony {

enum class RecipientPlacement { kAfterRole, kAfterChannel };

enum class AnalysisFilter {
  kKeepAll,
  kBeforeLastFinal,  // ours: reasoning is kept only inside the unfinished turn
  kCrate,            // the crate's: only if the last assistant message is final, and then before the first final
};

struct RenderStyle {
  SchemaStyle schema = {};
  RecipientPlacement recipient = RecipientPlacement::kAfterChannel;
  AnalysisFilter filter = AnalysisFilter::kBeforeLastFinal;
};

// What rose serves. Calls are re-rendered the way the model itself writes them most.
inline constexpr RenderStyle kServedStyle = {};
// Byte parity with openai-harmony.
inline constexpr RenderStyle kCrateStyle = {
    .schema = {.crate = true}, .recipient = RecipientPlacement::kAfterRole, .filter = AnalysisFilter::kCrate};

inline constexpr std::string_view kCallChannel = "commentary";
inline constexpr std::string_view kCallContentType = "<|constrain|>json";

class Renderer {
 public:
  // `tokenizer` must outlive the renderer.
  Renderer(const Tokenizer& tokenizer, const SpecialTokens& tokens, RenderStyle style)
      : tokenizer_(tokenizer), tokens_(tokens), style_(style) {}

  // Errors: a tool message without a name.
  Result<std::vector<TokenId>> render(std::span<const HarmonyMessage> messages) const;
  // The same with the last assistant final ended by <|return|>, as in training data. Never a prompt.
  Result<std::vector<TokenId>> render_for_training(std::span<const HarmonyMessage> messages) const;

  // Appends one message. `functions_line`: see content_text.h.
  Result<Ok> append(const HarmonyMessage& message, bool functions_line, std::vector<TokenId>& out) const;
  // Header and content, without the terminator.
  Result<Ok> append_open(const HarmonyMessage& message, bool functions_line, std::vector<TokenId>& out) const;
  // Appends <|start|> and the author.
  void append_start(std::string_view author, std::vector<TokenId>& out) const;
  // <|channel|>, the channel, recipient and content type (either may be empty); no <|message|>.
  void append_channel(std::string_view channel, std::string_view recipient, std::string_view content_type,
                      std::vector<TokenId>& out) const;

  const SpecialTokens& tokens() const { return tokens_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  void append_content_type(std::string_view content_type, std::vector<TokenId>& out) const;

  const Tokenizer& tokenizer_;
  SpecialTokens tokens_;
  RenderStyle style_;
};

// For each message, whether the filter keeps it.
std::vector<bool> kept_messages(std::span<const HarmonyMessage> messages, AnalysisFilter filter);

}  // namespace rose::harmony
