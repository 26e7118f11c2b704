// Reading the header of a generated message, whatever the model made of it (spec: harmony.md 3.3). Nothing here fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/conversation.h"

namespace rose::harmony {

enum class Mark { kNone, kChannel, kConstrain };

// A header is split at the special ids inside it, never at their text.
struct HeaderSegment {
  Mark mark = Mark::kNone;  // what stands before the text
  std::string text;         // raw bytes of the tokens
};

enum class Channel { kNone, kAnalysis, kCommentary, kFinal };

struct Header {
  Role role = Role::kAssistant;
  std::string author;     // kTool: who the model speaks for
  std::string recipient;  // empty: none, or everybody
  Channel channel = Channel::kNone;
  std::string content_type;  // "json", "code", ...; mark removed
};

// `role_implied`: no <|start|> stood before, so the author is the assistant unless a role word says otherwise.
Header read_header(const std::vector<HeaderSegment>& segments, bool role_implied);

// A header whose <|message|> never came: what can be read of it, and the rest as text with its white space.
struct Orphan {
  Header header;
  std::string text;
};
Orphan read_orphan(const std::vector<HeaderSegment>& segments, bool role_implied);

bool has_marks(const std::vector<HeaderSegment>& segments);
// Nothing but white space and role words.
bool is_blank_header(const std::vector<HeaderSegment>& segments);
// The markless text looks like a header that was cut off, rather than like prose.
bool is_header_beginning(std::string_view text, bool role_implied);

// Words separated by Unicode White_Space: models have produced U+00A0 and U+202F in headers.
std::vector<std::string_view> split_words(std::string_view text);
// Bytes of the white space that `text` starts with (one code point), 0 if none.
std::size_t white_space_at(std::string_view text);
bool is_blank(std::string_view text);

}  // namespace rose::harmony
