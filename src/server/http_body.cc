#include "server/http_body.h"

#include <algorithm>

namespace rose::http {

BodyDecoder BodyDecoder::of_length(std::uint64_t bytes, const BodyLimits& limits) {
  BodyDecoder decoder(limits);
  decoder.state_ = bytes == 0 ? State::kDone : State::kFixed;
  decoder.left_ = bytes;
  if (bytes > limits.bytes_max) decoder.fail(413, "the request body is too large");
  return decoder;
}

BodyDecoder BodyDecoder::chunked(const BodyLimits& limits) {
  BodyDecoder decoder(limits);
  decoder.state_ = State::kSizeLine;
  return decoder;
}

void BodyDecoder::fail(int status, std::string message) {
  if (!error_) error_ = RequestError{status, std::move(message), "", ""};
}

std::size_t BodyDecoder::feed(std::string_view input, std::string& body) {
  std::size_t at = 0;
  while (at < input.size() && !done() && !error_) {
    if (state_ == State::kFixed || state_ == State::kBytes) {
      const std::size_t take = static_cast<std::size_t>(std::min<std::uint64_t>(left_, input.size() - at));
      body.append(input.substr(at, take));
      at += take;
      left_ -= take;
      if (left_ == 0) state_ = state_ == State::kFixed ? State::kDone : State::kBytesEnd;
    } else {
      take_control_byte(input[at++]);
    }
  }
  return at;
}

// A CR is only good right before an LF, an LF only right after a CR; other control characters are refused.
bool BodyDecoder::take_line_byte(char c, std::size_t line_bytes_max) {
  if (last_was_cr_) {
    last_was_cr_ = false;
    if (c == '\n') return true;
    fail(400, "bare CR in a chunked body");
    return false;
  }
  if (c == '\r') {
    last_was_cr_ = true;
    return false;
  }
  const auto byte = static_cast<unsigned char>(c);
  if ((byte < 0x20 && c != '\t') || byte == 0x7f) {
    fail(400, "control character in a chunked body");
  } else if (line_.size() >= line_bytes_max) {
    fail(400, "a line of the chunked body is too long");
  } else {
    line_ += c;
  }
  return false;
}

void BodyDecoder::take_control_byte(char c) {
  ++overhead_;
  if (overhead_ > limits_.overhead_bytes_free && overhead_ / 3 > decoded_) {
    return fail(400, "the chunked body is mostly overhead");
  }
  switch (state_) {
    case State::kSizeLine:
      if (take_line_byte(c, 16 + 1 + limits_.extension_bytes_max)) end_size_line();
      break;
    case State::kBytesEnd:
      if (c == '\r' && !last_was_cr_) {
        last_was_cr_ = true;
      } else if (c == '\n' && last_was_cr_) {
        last_was_cr_ = false;
        state_ = State::kSizeLine;
      } else {
        fail(400, "a chunk does not end where its size says");
      }
      break;
    case State::kTrailer:
      if (++trailer_bytes_ > limits_.trailer_bytes_max) return fail(400, "the trailers are too large");
      if (take_line_byte(c, limits_.trailer_bytes_max)) end_trailer_line();
      break;
    default:
      break;
  }
}

void BodyDecoder::end_size_line() {
  const std::size_t digits = std::min(line_.find(';'), line_.size());
  if (digits == 0 || digits > 16) return fail(400, "malformed chunk size");
  std::uint64_t size = 0;
  for (const char c : std::string_view(line_).substr(0, digits)) {
    int value = -1;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
    if (value < 0) return fail(400, "malformed chunk size");
    size = size << 4 | static_cast<std::uint64_t>(value);  // at most 16 digits: no overflow
  }
  const std::size_t extension = line_.size() - digits;
  extension_bytes_ += extension;
  if (extension > limits_.extension_bytes_max || extension_bytes_ > limits_.extension_bytes_total_max) {
    return fail(400, "chunk extensions are too large");
  }
  line_.clear();
  if (size == 0) {
    state_ = State::kTrailer;
    return;
  }
  if (++chunks_ > limits_.chunks_max) return fail(400, "too many chunks");
  if (size > limits_.bytes_max || decoded_ > limits_.bytes_max - size) {
    return fail(413, "the request body is too large");
  }
  decoded_ += size;
  left_ = size;
  state_ = State::kBytes;
}

void BodyDecoder::end_trailer_line() {
  if (line_.empty()) {
    state_ = State::kDone;
    return;
  }
  const std::size_t colon = line_.find(':');
  if (colon == std::string::npos || colon == 0 || line_.find_first_of(" \t") < colon) {
    return fail(400, "malformed trailer");
  }
  line_.clear();
}

}  // namespace rose::http
