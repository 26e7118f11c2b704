#include "server/http_head.h"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>

namespace rose::http {
namespace {

namespace beast_http = boost::beast::http;

bool is_token_char(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

RequestError bad(std::string message, int status = 400) { return {status, std::move(message), "", ""}; }

// Host, and the authority of an absolute target: no list, no user, no space.
bool is_authority(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' ||
           c == ':' || c == '[' || c == ']' || c == '_';
  });
}

std::optional<RequestError> check_request_line(std::string_view line, const HeadLimits& limits) {
  if (line.size() > limits.line_bytes_max) return bad("the request line is too long", 414);
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || line.find(' ', second + 1) != std::string_view::npos) {
    return bad("malformed request line");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!is_token(method)) return bad("malformed method");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool known_shape = version.size() == 8 && version.substr(0, 5) == "HTTP/" && version[6] == '.';
    return known_shape ? bad("only HTTP/1.1 and HTTP/1.0 are served", 505) : bad("malformed HTTP version");
  }
  if (target.size() > limits.target_bytes_max) return bad("the request target is too long", 414);
  const bool visible =
      std::all_of(target.begin(), target.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  if (target.empty() || !visible) return bad("malformed request target");
  return std::nullopt;
}

std::optional<RequestError> check_field_line(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return bad("folded header lines are not accepted");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return bad("malformed header name");
  for (const unsigned char c : line.substr(colon + 1)) {
    if ((c < 0x20 && c != '\t') || c == 0x7f) return bad("control character in a header value");
  }
  return std::nullopt;
}

// What the parsed message no longer shows (line ends, folding, spaces before a colon) is checked on the bytes
// themselves.
std::optional<RequestError> check_raw(std::string_view raw, const HeadLimits& limits) {
  if (raw.size() > limits.head_bytes_max) return bad("the request head is too large", 431);
  int lines = 0;
  while (true) {
    const std::size_t end = raw.find("\r\n");
    if (end == std::string_view::npos) return bad("incomplete request head");
    const std::string_view line = raw.substr(0, end);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
      return bad("bare CR, LF or NUL in the request head");
    }
    raw.remove_prefix(end + 2);
    if (lines > 0 && line.empty()) break;
    const std::optional<RequestError> error = lines == 0 ? check_request_line(line, limits) : check_field_line(line);
    if (error) return error;
    if (++lines > limits.fields_max + 1) return bad("too many header fields", 431);
  }
  return raw.empty() ? std::nullopt : std::optional(bad("bytes after the request head"));
}

struct FramingFields {
  int hosts = 0, lengths = 0, encodings = 0;
  std::string_view host, length, encoding, connection, expect;
};

FramingFields framing_fields(const Head& head) {
  FramingFields found;
  for (const auto& [name, value] : head.fields) {
    if (name == "host") ++found.hosts, found.host = value;
    if (name == "content-length") ++found.lengths, found.length = value;
    if (name == "transfer-encoding") ++found.encodings, found.encoding = value;
    if (name == "connection") found.connection = value;
    if (name == "expect") found.expect = value;
  }
  return found;
}

// RFC 9112 section 6 with every case that two readers may see differently refused.
std::optional<RequestError> read_framing(const FramingFields& found, Head& head) {
  if (found.lengths > 1) return bad("more than one Content-Length");
  if (found.encodings > 1) return bad("more than one Transfer-Encoding");
  if (found.lengths > 0 && found.encodings > 0) return bad("Content-Length and Transfer-Encoding together");
  if (found.encodings > 0) {
    if (head.minor_version == 0) return bad("Transfer-Encoding in HTTP/1.0");
    if (lower(found.encoding) != "chunked") return bad("the only Transfer-Encoding served is chunked", 501);
    head.chunked = true;
  }
  if (found.lengths > 0) {
    const std::string_view text = found.length;
    const bool digits = !text.empty() && text.size() <= 19 &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return bad("malformed Content-Length");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.content_length);
    if (error != std::errc() || end != text.data() + text.size() || head.content_length >> 63 != 0) {
      return bad("malformed Content-Length");
    }
  }
  return std::nullopt;
}

std::optional<RequestError> read_target(std::string target, const FramingFields& found, Head& head) {
  if (found.hosts > 1) return bad("more than one Host");
  if (found.hosts == 0 && head.minor_version == 1) return bad("Host is missing");
  if (found.hosts == 1 && !is_authority(found.host)) return bad("malformed Host");
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.compare(0, scheme.size(), scheme) != 0) continue;
    const std::size_t slash = target.find_first_of("/?", scheme.size());
    const std::string authority =
        target.substr(scheme.size(), slash == std::string::npos ? slash : slash - scheme.size());
    if (lower(authority) != lower(found.host)) return bad("the target names another host than Host");
    target = slash == std::string::npos ? "/" : target.substr(slash);
    if (target.front() == '?') target.insert(target.begin(), '/');
    break;
  }
  if (target.front() != '/' && !(target == "*" && head.method == "OPTIONS")) return bad("malformed request target");
  const std::size_t question = target.find('?');
  head.path = target.substr(0, question);
  if (question != std::string::npos) head.query = target.substr(question + 1);
  return std::nullopt;
}

std::optional<RequestError> read_connection(const FramingFields& found, Head& head) {
  head.keep_alive = head.minor_version == 1;
  std::string_view rest = found.connection;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string option = lower(trimmed(rest.substr(0, comma)));
    if (option == "close") head.keep_alive = false;
    if (option == "keep-alive" && head.minor_version == 0) head.keep_alive = true;
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  if (!found.expect.empty()) {
    if (lower(found.expect) != "100-continue") return bad("unknown expectation", 417);
    head.expects_continue = head.minor_version == 1;
  }
  return std::nullopt;
}

}  // namespace

std::string_view Head::field(std::string_view lower_case_name) const {
  for (const auto& [name, value] : fields) {
    if (name == lower_case_name) return value;
  }
  return {};
}

std::optional<std::size_t> head_end(std::string_view input, std::size_t searched_before) {
  const std::size_t from = searched_before < 3 ? 0 : searched_before - 3;
  const std::size_t at = input.find("\r\n\r\n", from);
  return at == std::string_view::npos ? std::nullopt : std::optional(at + 4);
}

Result<Head> parse_head(std::string_view raw, const HeadLimits& limits) {
  if (auto error = check_raw(raw, limits)) return *std::move(error);

  beast_http::request_parser<beast_http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(limits.head_bytes_max + 1));
  parser.body_limit(boost::none);
  boost::beast::error_code code;
  parser.put(boost::asio::buffer(raw.data(), raw.size()), code);
  if (code && code != beast_http::error::need_more) return bad("malformed request head");
  if (!parser.is_header_done()) return bad("malformed request head");

  const auto& message = parser.get();
  Head head;
  head.minor_version = message.version() == 10 ? 0 : 1;
  if (message.method() == beast_http::verb::unknown) return bad("unknown method", 501);
  head.method = std::string(message.method_string());
  for (const auto& field : message) {
    head.fields.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                             trimmed({field.value().data(), field.value().size()}));
  }
  const FramingFields found = framing_fields(head);
  if (auto error = read_framing(found, head)) return *std::move(error);
  if (auto error = read_target(std::string(message.target()), found, head)) return *std::move(error);
  if (auto error = read_connection(found, head)) return *std::move(error);
  return head;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (error != std::errc() || end != text.data() + i + 3 || value == 0) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

}  // namespace rose::http
