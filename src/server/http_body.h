// The body of an HTTP/1.1 request: by length, or in chunks. Strict, and bounded in bytes, chunks and overhead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rose::http {

struct BodyLimits {
  std::uint64_t bytes_max = 8u << 20;  // decoded; more: 413
  int chunks_max = 65'536;
  std::size_t extension_bytes_max = 256;  // of one chunk
  std::size_t extension_bytes_total_max = 16 << 10;
  std::size_t trailer_bytes_max = 4 << 10;  // trailers are read and dropped
  // Chunk lines may cost this much, or three bytes of four, whichever is more: tiny chunks are an attack on the reader.
  std::uint64_t overhead_bytes_free = 100u << 10;
};

class BodyDecoder {
 public:
  static BodyDecoder of_length(std::uint64_t bytes, const BodyLimits& limits);
  static BodyDecoder chunked(const BodyLimits& limits);

  // Takes bytes from the front of `input`, appends the body's to `body`; returns how many were taken. Stops at the end
  // of the body and at the first error.
  std::size_t feed(std::string_view input, std::string& body);
  bool done() const { return state_ == State::kDone; }
  const std::optional<RequestError>& error() const { return error_; }

 private:
  enum class State { kFixed, kSizeLine, kBytes, kBytesEnd, kTrailer, kDone };

  explicit BodyDecoder(const BodyLimits& limits) : limits_(limits) {}
  void fail(int status, std::string message);
  bool take_line_byte(char c, std::size_t line_bytes_max);  // true: line_ is complete
  void end_size_line();
  void end_trailer_line();
  void take_control_byte(char c);

  BodyLimits limits_;
  State state_ = State::kFixed;
  std::uint64_t left_ = 0;  // of the body (kFixed) or of the chunk (kBytes)
  std::uint64_t decoded_ = 0;
  std::uint64_t overhead_ = 0;
  std::size_t extension_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  int chunks_ = 0;
  bool last_was_cr_ = false;
  std::string line_;  // chunk-size or trailer line so far, without CRLF
  std::optional<RequestError> error_;
};

}  // namespace rose::http
