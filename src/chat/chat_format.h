// A chat format turns conversations into token ids, and generated ids into what a front end shows. The list of formats
// is in chat_formats.cc; a weight file names the one its model speaks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"

namespace rose {

enum class ChatEventKind {
  kReasoning,          // text: a delta of analysis
  kContent,            // text: a delta of what the user sees (final answer, preambles)
  kToolCallBegin,      // call, name: once, complete, before any arguments
  kToolCallArguments,  // call, text: a delta of the argument text
  kToolCallEnd,        // call: the call is complete
};

struct ChatEvent {
  ChatEventKind kind;
  std::string text = {};
  int call = -1;          // 0, 1, ... within the choice
  std::string name = {};  // tool name, namespace removed, resolved against the declared tools
};

// Total: no sequence of ids fails. One parser a choice.
class ChatParser {
 public:
  virtual ~ChatParser() = default;

  // Appends what id adds to `events`; deltas are complete UTF-8 and their concatenation is the whole text.
  virtual void feed(TokenId id, std::vector<ChatEvent>& events) = 0;
  // The generation ended, by a stop token, a limit or a stop string; flushes what was held back.
  virtual void finish(std::vector<ChatEvent>& events) = 0;

  // The last fed id carried visible text (for logprobs). False for text that is held back until its kind is known: see
  // content_positions.
  virtual bool last_was_content() const = 0;
  // Positions (0: the first fed id) of all ids that carried visible text so far, ascending. Held-back text adds its ids
  // when it is shown, at the latest in finish(). Up to white space and separators the parser adds or takes away between
  // messages, the bytes of these ids are the content.
  virtual const std::vector<std::int64_t>& content_positions() const {
    static const std::vector<std::int64_t> kNone;
    return kNone;
  }
  // Ids of analysis messages so far, headers included.
  virtual int reasoning_tokens() const = 0;
  // A complete tool call has been seen.
  virtual bool called_tool() const = 0;
  // Generation should end here although no stop token came (the model began to speak for somebody else).
  virtual bool wants_stop() const = 0;
};

// What the first generated ids have to be, as plain logic: the rest of a header whose beginning the prompt already
// holds. The server wraps it into a token mask (decode/token_mask.h).
class HeaderConstraint {
 public:
  virtual ~HeaderConstraint() = default;
  // `generated`: all ids since the prompt. The ids that may follow; empty: any (the header is over). Cost: the length
  // of the header, whatever the length of `generated`.
  virtual std::vector<TokenId> allowed_next_tokens(std::span<const TokenId> generated) const = 0;
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  virtual std::string_view name() const = 0;
  // Errors: 400 with the field at fault (unknown tool_call_id, bad tool name, ...).
  virtual Result<std::vector<TokenId>> render(const Conversation& conversation) const = 0;
  // A parser for the answer to `conversation`, in the state that the rendered prompt leaves it in.
  virtual std::unique_ptr<ChatParser> parser(const Conversation& conversation) const = 0;
  // For a conversation that render() accepts: what the tool choice demands of the generation beyond the prompt; null:
  // nothing.
  virtual std::shared_ptr<const HeaderConstraint> constraint(const Conversation& conversation) const {
    (void)conversation;
    return nullptr;
  }
  // Ids that end a generation: the union of the format's own and the checkpoint's.
  virtual const std::vector<TokenId>& stop_tokens() const = 0;
};

// `generation_stop_tokens`: eos_token_id of generation_config.json. Throws StartError for an unknown name or a
// tokenizer without the format's special tokens.
std::unique_ptr<ChatFormat> make_chat_format(std::string_view name, std::shared_ptr<const Tokenizer> tokenizer,
                                             const std::vector<TokenId>& generation_stop_tokens);

}  // namespace rose
