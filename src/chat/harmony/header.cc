#include "chat/harmony/header.h"

#include <algorithm>
#include <array>

#include "chat/harmony/builtin_tools.h"
#include "chat/harmony/message.h"

namespace rose::harmony {
namespace {

constexpr std::string_view kTo = "to=";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_channel_letter(char c) { return is_letter(c) || c == '_'; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_content_type(std::string_view word) { return word == "json" || word == "code" || word == "text"; }

// A channel from the word after a channel mark.
Channel channel_of(std::string_view word) {
  const std::string name = lower(word);
  if (name.starts_with("comment")) return Channel::kCommentary;
  if (name.starts_with("analysis")) return Channel::kAnalysis;
  if (name.starts_with("final")) return Channel::kFinal;
  return Channel::kNone;
}

// A channel from a word that no mark introduces: only the exact names, and the well-known half of one.
Channel bare_channel_of(std::string_view word) {
  for (const std::string_view name : {"analysis", "commentary", "comment", "final"}) {
    if (word == name) return channel_of(word);
  }
  return Channel::kNone;
}

// The run of letters that names a channel, junk before it skipped; [from, to) within text.
struct Span {
  std::size_t from = 0;
  std::size_t to = 0;
};
Span channel_letters(std::string_view text) {
  Span span;
  while (span.from < text.size() && !is_channel_letter(text[span.from])) ++span.from;
  span.to = span.from;
  while (span.to < text.size() && is_channel_letter(text[span.to])) ++span.to;
  return span;
}

struct RoleWord {
  Role role;
  std::size_t bytes;
};

// A role word at the start of `word`, alone, repeated ("assistantassistant"), with a name (":bob") or run into a
// channel.
std::optional<RoleWord> leading_role(std::string_view word) {
  for (const Role role : {Role::kAssistant, Role::kUser, Role::kSystem, Role::kDeveloper, Role::kTool}) {
    const std::string_view name = role_word(role);
    if (!word.starts_with(name)) continue;
    std::size_t bytes = name.size();
    while (word.substr(bytes).starts_with(name)) bytes += name.size();
    const std::string_view rest = word.substr(bytes);
    if (rest.empty()) return RoleWord{role, bytes};
    if (rest.front() == ':') return RoleWord{role, word.size()};
    if (role == Role::kAssistant && (bare_channel_of(rest) != Channel::kNone || rest.starts_with(kTo))) {
      return RoleWord{role, bytes};
    }
  }
  return std::nullopt;
}

std::string clean_recipient(std::string_view word) {
  word = word.substr(0, word.find("<|"));
  while (!word.empty() && (word.front() == '"' || word.front() == '\'' || word.front() == '`')) word.remove_prefix(1);
  while (!word.empty() && std::string_view("\"'`?:,").find(word.back()) != std::string_view::npos) {
    word.remove_suffix(1);
  }
  return std::string(word);
}

bool is_everybody(std::string_view recipient) {
  return recipient == "assistant" || recipient == "user" || recipient == "all";
}

class HeaderReader {
 public:
  HeaderReader(const std::vector<HeaderSegment>& segments, bool role_implied) : role_implied_(role_implied) {
    for (const HeaderSegment& segment : segments) read(segment);
    finish();
  }
  Header take() { return std::move(header_); }

 private:
  void read(const HeaderSegment& segment);
  void word(std::string_view word, bool leading);
  bool recipient(std::string_view word);
  void finish();

  bool role_implied_;
  bool role_known_ = false;
  bool addressed_ = false;  // some to= was there, even to=assistant
  bool channel_marked_ = false;
  Channel bare_channel_ = Channel::kNone;
  std::string bare_content_type_;
  std::string first_word_;  // of the leading text, where a role should stand
  Header header_;
};

void HeaderReader::read(const HeaderSegment& segment) {
  std::string_view text = segment.text;
  if (segment.mark == Mark::kChannel) {
    channel_marked_ = true;
    const Span span = channel_letters(text);
    // "to" of "to=..." is no channel word.
    if (!text.substr(span.from).starts_with(kTo)) {
      const Channel channel = channel_of(text.substr(span.from, span.to - span.from));
      if (channel != Channel::kNone) header_.channel = channel;
      text.remove_prefix(span.to);
    }
  }
  bool first = true;
  for (std::string_view item : split_words(text)) {
    if (segment.mark == Mark::kConstrain && first && !item.starts_with(kTo)) {
      header_.content_type = item;
    } else {
      word(item, segment.mark == Mark::kNone && first);
    }
    first = false;
  }
}

void HeaderReader::word(std::string_view item, bool leading) {
  if (leading) {
    if (const auto role = leading_role(item)) {
      header_.role = role->role;
      role_known_ = true;
      item.remove_prefix(role->bytes);
      if (item.empty()) return;
    } else {
      first_word_ = item;
    }
  }
  if (recipient(item)) return;
  if (bare_channel_of(item) != Channel::kNone) {
    bare_channel_ = bare_channel_of(item);
  } else if (is_content_type(item)) {
    bare_content_type_ = item;
  }
}

bool HeaderReader::recipient(std::string_view item) {
  std::size_t at = item.starts_with(kTo) ? 0 : item.find("to=functions.");  // run into the word before
  if (at == std::string_view::npos) return false;
  addressed_ = true;
  std::string name = clean_recipient(item.substr(at + kTo.size()));
  if (!name.empty() && !is_everybody(name)) header_.recipient = std::move(name);
  return true;
}

void HeaderReader::finish() {
  if (!channel_marked_) header_.channel = bare_channel_;
  if (header_.content_type.empty()) header_.content_type = bare_content_type_;
  if (role_known_ || first_word_.empty() || first_word_.starts_with(kTo)) return;
  // A tool's name where a role should be: the model imagines the tool's answer. Other words are junk. A message
  // addressed to a function comes from the assistant whatever stands in front.
  const bool tool_name = first_word_.starts_with("functions.") || is_builtin_recipient(first_word_);
  const bool to_assistant = addressed_ && header_.recipient.empty();
  const bool channel_word = bare_channel_of(first_word_) != Channel::kNone;
  if (tool_name ? (to_assistant || !role_implied_) : (to_assistant && !role_implied_ && !channel_word)) {
    header_.role = Role::kTool;
    header_.author = first_word_;
  }
}

// The rest of a segment behind the header words it starts with; one space between them and the text is theirs.
std::string_view behind_header_words(const HeaderSegment& segment, bool role_implied) {
  std::string_view text = segment.text;
  const std::string_view whole = text;
  const auto blank = [](std::string_view rest) {
    std::size_t bytes = 0;
    while (const std::size_t one = white_space_at(rest.substr(bytes))) bytes += one;
    return bytes;
  };
  if (segment.mark == Mark::kNone) {
    const std::size_t space = blank(text);
    const std::vector<std::string_view> words = split_words(text);
    const auto role = words.empty() ? std::nullopt : leading_role(words.front());
    const bool repeated = role && role->role == Role::kAssistant;
    if (role && (!role_implied || repeated)) text.remove_prefix(space + role->bytes);
  } else if (segment.mark == Mark::kChannel) {
    const Span span = channel_letters(text);
    const std::string_view name = text.substr(span.from, span.to - span.from);
    if (channel_of(name) != Channel::kNone) text.remove_prefix(span.to);
  } else {
    const Span span = channel_letters(text);
    if (is_content_type(text.substr(0, span.to))) text.remove_prefix(span.to);
  }
  if (const std::size_t space = blank(text); text.substr(space).starts_with(kTo)) {
    const std::string_view rest = text.substr(space);
    std::size_t end = split_words(rest).front().size();
    // "to=functions.f{...}": a name holds no brace.
    end = std::min(end, rest.find('{'));
    text.remove_prefix(space + end);
  }
  if (segment.mark != Mark::kNone) {
    const std::size_t space = blank(text);
    const Span span = channel_letters(text.substr(space));
    if (is_content_type(text.substr(space, span.to)) && text.size() < whole.size()) {
      text.remove_prefix(space + span.to);
    }
  }
  if (text.size() < whole.size()) text.remove_prefix(white_space_at(text));
  return text;
}

}  // namespace

std::size_t white_space_at(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) == 0x20 || (byte(0) >= 0x09 && byte(0) <= 0x0d)) return 1;
  if (text.size() >= 2 && byte(0) == 0xc2 && (byte(1) == 0x85 || byte(1) == 0xa0)) return 2;
  if (text.size() < 3) return 0;
  static constexpr std::array<std::string_view, 4> kOthers = {"\xe1\x9a\x80", "\xe2\x80\xaf", "\xe2\x81\x9f",
                                                              "\xe3\x80\x80"};
  for (const std::string_view other : kOthers) {
    if (text.starts_with(other)) return 3;
  }
  const bool general = byte(0) == 0xe2 && byte(1) == 0x80;
  const bool space = (byte(2) >= 0x80 && byte(2) <= 0x8a) || byte(2) == 0xa8 || byte(2) == 0xa9;
  return general && space ? 3 : 0;
}

bool is_blank(std::string_view text) {
  while (const std::size_t space = white_space_at(text)) text.remove_prefix(space);
  return text.empty();
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t from = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t space = white_space_at(text.substr(at));
    if (space == 0) {
      ++at;
      continue;
    }
    if (at > from) words.push_back(text.substr(from, at - from));
    at += space;
    from = at;
  }
  if (text.size() > from) words.push_back(text.substr(from));
  return words;
}

bool has_marks(const std::vector<HeaderSegment>& segments) {
  return std::ranges::any_of(segments, [](const HeaderSegment& segment) { return segment.mark != Mark::kNone; });
}

bool is_blank_header(const std::vector<HeaderSegment>& segments) {
  return std::ranges::all_of(segments, [](const HeaderSegment& segment) {
    if (segment.mark != Mark::kNone) return is_blank(segment.text);
    const std::vector<std::string_view> words = split_words(segment.text);
    return std::ranges::all_of(words, [](std::string_view word) {
      const auto role = leading_role(word);
      return role && role->bytes == word.size();
    });
  });
}

bool is_header_beginning(std::string_view text, bool role_implied) {
  const std::vector<std::string_view> words = split_words(text);
  std::size_t at = 0;
  if (!role_implied && !words.empty()) {
    // "<|start|>assis": cut inside the role.
    if (words.size() == 1 && std::string_view("assistant").starts_with(words.front())) return true;
    if (leading_role(words.front())) ++at;
  }
  if (at == words.size()) return true;
  const std::string_view word = words[at];
  if (word.starts_with(kTo)) return true;
  const bool last = at + 1 == words.size();
  return last && (kTo.starts_with(word) || bare_channel_of(word) != Channel::kNone);
}

Header read_header(const std::vector<HeaderSegment>& segments, bool role_implied) {
  return HeaderReader(segments, role_implied).take();
}

Orphan read_orphan(const std::vector<HeaderSegment>& segments, bool role_implied) {
  Orphan orphan;
  // Words of prose are no header: without a mark only a role or a recipient at the very start counts.
  std::vector<HeaderSegment> read;
  for (const HeaderSegment& segment : segments) {
    const std::string_view rest = behind_header_words(segment, role_implied);
    read.push_back({segment.mark, segment.text.substr(0, segment.text.size() - rest.size())});
    orphan.text += rest;
  }
  orphan.header = read_header(read, role_implied);
  if (!role_implied) {
    // Somebody else's message stays somebody else's.
    Header whole = read_header(segments, role_implied);
    orphan.header.role = whole.role;
    orphan.header.author = std::move(whole.author);
  }
  return orphan;
}

}  // namespace rose::harmony
