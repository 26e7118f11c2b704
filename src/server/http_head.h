// The head of an HTTP/1.1 request: request line and header fields. Strict (RFC 9112 without its lenient options),
// because whatever a proxy in front of us reads differently from us is a way to smuggle requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace rose::http {

struct HeadLimits {
  std::size_t line_bytes_max = 8 << 10;    // request line; more: 414
  std::size_t target_bytes_max = 4 << 10;  // more: 414
  std::size_t head_bytes_max = 32 << 10;   // all of it; more: 431
  int fields_max = 100;                    // more: 431
};

struct Head {
  std::string method;                                       // "GET"; one of the registered methods
  std::string path;                                         // "/v1/models/a%2Fb", not decoded, without the query
  std::string query;                                        // after '?', may be empty
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case, values trimmed
  int minor_version = 1;
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  std::uint64_t content_length = 0;  // 0 without a body

  bool has_body() const { return chunked || content_length > 0; }
  std::string_view field(std::string_view lower_case_name) const;  // first of that name, or empty
};

// Offset just past the blank line that ends the head at the front of `input`; nullopt while it is incomplete.
std::optional<std::size_t> head_end(std::string_view input, std::size_t searched_before = 0);

// `raw` is a whole head, its blank line included. Errors carry the status to answer with; after any of them the
// connection must be closed, because where the next request begins is not known.
Result<Head> parse_head(std::string_view raw, const HeadLimits& limits = {});

// "%41" -> "A"; nullopt for a bad escape or a NUL.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace rose::http
