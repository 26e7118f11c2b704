#include "chat/harmony/strict_parser.h"

#include <algorithm>

#include "chat/harmony/header.h"

namespace rose::harmony {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

RequestError refusal(std::string text) { return {.status = 400, .message = std::move(text)}; }

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (!step.valid) return false;
    bytes.remove_prefix(static_cast<std::size_t>(step.bytes));
  }
  return true;
}

// Takes "<|channel|>NAME" out of the header. Errors: the mark without a name.
Result<Ok> take_channel(std::string& header, std::string& channel) {
  const std::size_t at = header.find(kChannelText);
  if (at == std::string::npos) return Ok{};
  const std::size_t from = at + kChannelText.size();
  std::size_t to = from;
  while (to < header.size() && header[to] != '<' && white_space_at(std::string_view(header).substr(to)) == 0) ++to;
  if (to == from) return refusal("channel marker present but no channel value found in header");
  channel = header.substr(from, to - from);
  header.erase(at, to - at);
  return Ok{};
}

void space_before_constrain(std::string& header) {
  std::size_t at = 0;
  while ((at = header.find(kConstrainText, at)) != std::string::npos) {
    header.insert(at, " ");
    at += kConstrainText.size() + 1;
  }
}

// The crate splits at ASCII white space alone.
std::vector<std::string_view> ascii_words(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f";
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t from = text.find_first_not_of(kSpaces);
    if (from == std::string_view::npos) return words;
    text.remove_prefix(from);
    const std::size_t to = std::min(text.find_first_of(kSpaces), text.size());
    words.push_back(text.substr(0, to));
    text.remove_prefix(to);
  }
}

// Unicode white space off both ends.
std::string_view trimmed(std::string_view text) {
  while (const std::size_t space = white_space_at(text)) text.remove_prefix(space);
  for (std::size_t bytes = 1; bytes <= 3 && bytes <= text.size();) {
    if (white_space_at(text.substr(text.size() - bytes)) == bytes) {
      text.remove_suffix(bytes);
      bytes = 1;
    } else {
      ++bytes;
    }
  }
  return text;
}

// As Rust prints a string for debugging, as far as headers need it.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const std::string_view character = text.substr(0, static_cast<std::size_t>(step.bytes));
    text.remove_prefix(character.size());
    if (character == "\"" || character == "\\") {
      out += '\\';
      out += character;
    } else if (step.code < 0x20 || (step.code >= 0x7f && step.code <= 0xa0) || step.code == 0xad) {
      out += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(step.code));
    } else {
      out += character;
    }
  }
  return out + "\"";
}

std::string_view without_to(std::string_view word) { return word.starts_with("to=") ? word.substr(3) : word; }

}  // namespace

StrictParser::StrictParser(const Tokenizer& tokenizer, const SpecialTokens& tokens, std::optional<Role> role)
    : tokenizer_(tokenizer), tokens_(tokens), role_(role) {
  if (role_) state_ = State::kHeader;
}

Result<Ok> StrictParser::feed(TokenId id) {
  delta_.clear();
  switch (state_) {
    case State::kExpectStart:
      if (id != tokens_.start) {
        return refusal(fmt::format("Unexpected token {} while expecting start token {}", id, tokens_.start));
      }
      state_ = State::kHeader;
      header_.clear();
      header_broken_ = false;
      return Ok{};
    case State::kHeader: {
      if (id != tokens_.message) {
        const std::string_view bytes = tokenizer_.decode(id);
        if (bytes.empty()) header_broken_ = true;
        header_ += bytes;
        return Ok{};
      }
      state_ = State::kExpectStart;
      Result<HarmonyMessage> header = read_header();
      if (!header) return header.error();
      role_.reset();
      open_ = *std::move(header);
      open_.content = std::string();
      utf8_ = {};
      broken_ = false;
      state_ = State::kContent;
      return Ok{};
    }
    case State::kContent:
      if (id == tokens_.end || id == tokens_.turn_end || id == tokens_.call) {
        close();
      } else {
        content(id);
      }
      return Ok{};
  }
  return Ok{};
}

void StrictParser::content(TokenId id) {
  if (broken_) return;
  const std::string_view bytes = tokenizer_.decode(id);
  if (bytes.empty()) {
    broken_ = true;
    return;
  }
  utf8_.feed(bytes, delta_);
  std::get<std::string>(open_.content) += delta_;
}

void StrictParser::close() {
  if (broken_) {
    delta_ = kReplacement;
  } else {
    utf8_.flush(delta_);
  }
  std::get<std::string>(open_.content) += delta_;
  messages_.push_back(std::move(open_));
  open_ = {};
  state_ = State::kExpectStart;
}

Result<Ok> StrictParser::finish() {
  delta_.clear();
  if (state_ == State::kHeader) return refusal("Unexpected EOS while waiting for message header to complete");
  if (state_ == State::kContent) close();
  return Ok{};
}

Result<HarmonyMessage> StrictParser::read_header() const {
  if (header_broken_ || !is_valid_utf8(header_)) return refusal("could not decode header");
  HarmonyMessage message;
  std::string header = header_;
  const Result<Ok> channel = take_channel(header, message.channel);
  if (!channel) return channel.error();
  space_before_constrain(header);
  std::vector<std::string_view> parts = ascii_words(trimmed(header));

  std::string_view author;
  if (role_) {
    message.role = *role_;
  } else {
    if (parts.empty()) return refusal("message header did not contain a role");
    author = parts.front();
    if (const std::optional<Role> role = role_from_word(author)) {
      message.role = *role;
    } else if (parts.size() > 1 || author.starts_with("to=")) {
      parts.erase(parts.begin());
      message.role = Role::kTool;
    } else {
      return refusal(fmt::format("Unknown role: {}", author));
    }
  }
  if (!parts.empty() && parts.front() == role_word(message.role)) parts.erase(parts.begin());

  // Recipient, then content type; a single word is the recipient, with or without to=.
  if (!parts.empty()) {
    const bool alone = parts.size() == 1;
    const std::string_view last = parts.back();
    parts.pop_back();
    if (alone || last.starts_with("to=")) {
      message.recipient = without_to(last);
    } else {
      message.content_type = last;
      message.recipient = without_to(parts.back());
      parts.pop_back();
    }
  }
  if (!parts.empty()) {
    return refusal("unexpected tokens remaining in message header: Some(" +
                   quoted(fmt::format("{}", fmt::join(parts, " "))) + ")");
  }
  if (message.role == Role::kTool) message.name = author;
  return message;
}

}  // namespace rose::harmony
