#include "server/http_routes.h"

#include <fmt/format.h>

#include <algorithm>

namespace rose::http {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& entry) { return entry == "*" || entry == value; });
}

std::string_view without_port(std::string_view host) {
  if (!host.empty() && host.front() == '[') return host.substr(0, std::min(host.find(']'), host.size() - 1) + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(std::string_view name) {
  if (!name.empty() && name.front() == '[') return true;
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

bool host_allowed(std::string_view host, const ServerOptions& options) {
  const std::string_view name = without_port(host);
  return name.empty() || is_address(name) || name == "localhost" || contains(options.allowed_hosts, name);
}

bool origin_allowed(const Head& head, const ServerOptions& options) {
  const std::string_view origin = head.field("origin");
  if (origin.empty() || contains(options.allowed_origins, origin)) return true;
  const std::size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == head.field("host");  // our own page
}

// Whether `path` is the route's; `rest` gets what stands for "*".
bool path_matches(const Route& route, std::string_view path, std::string_view& rest) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string_view prefix = std::string_view(route.path).substr(0, route.path.size() - 1);
  if (!path.starts_with(prefix) || path.size() == prefix.size()) return false;
  rest = path.substr(prefix.size());
  return true;
}

bool key_accepted(const Head& head, const ServerOptions& options) {
  if (!options.keys.required()) return true;
  std::string_view key = head.field("x-api-key");
  const std::string_view authorization = head.field("authorization");
  if (authorization.size() > 7 && (authorization.starts_with("Bearer ") || authorization.starts_with("bearer "))) {
    key = authorization.substr(7);
  }
  return options.keys.accept(key);
}

Response refusal(const ServerOptions& options, int status, std::string_view message, Fields fields = {}) {
  return {.status = status, .body = options.error_body(status, message), .fields = std::move(fields)};
}

bool is_json(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') content_type.remove_suffix(1);
  const std::string_view json = "application/json";
  return content_type.empty() ||
         std::equal(content_type.begin(), content_type.end(), json.begin(), json.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

Fields cors_fields(const Head& head, const ServerOptions& options) {
  const std::string_view origin = head.field("origin");
  if (options.allowed_origins.empty() || origin.empty()) return {};
  if (!contains(options.allowed_origins, origin)) return {{"vary", "Origin"}};
  return {{"access-control-allow-origin", std::string(origin)},
          {"access-control-expose-headers", "x-request-id, retry-after"},
          {"vary", "Origin"}};
}

Routing choose_route(const Head& head, const std::vector<Route>& routes, const ServerOptions& options, bool loopback) {
  if (loopback && !host_allowed(head.field("host"), options)) {
    return {.refusal = refusal(options, 403, "This host name is not served; --allowed-hosts adds names.")};
  }
  if (!origin_allowed(head, options)) {
    return {.refusal = refusal(options, 403, "This origin is not allowed; --allowed-origins adds origins.")};
  }

  const Route* exact = nullptr;
  std::string allow;
  std::string_view rest;
  bool is_open = false;
  for (const Route& route : routes) {
    if (!path_matches(route, head.path, rest)) continue;
    allow += (allow.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
    is_open = is_open || route.open;
    if (route.method == head.method || (route.method == "GET" && head.method == "HEAD")) exact = &route;
  }
  if (head.method == "OPTIONS") {
    Response response{.status = 204, .body = "", .content_type = "", .fields = {}};
    response.fields.emplace_back("allow", (allow.empty() ? "" : allow + ", ") + "OPTIONS");
    if (contains(options.allowed_origins, head.field("origin"))) {
      response.fields.emplace_back("access-control-allow-methods", "GET, POST, DELETE, OPTIONS");
      const std::string_view asked = head.field("access-control-request-headers");
      response.fields.emplace_back("access-control-allow-headers",
                                   asked.empty() ? "authorization, content-type" : std::string(asked));
      response.fields.emplace_back("access-control-max-age", "600");
    }
    return {.refusal = std::move(response)};
  }
  if (!is_open && !key_accepted(head, options)) {
    return {.refusal = refusal(options, 401, "Incorrect API key provided. Send it as \"Authorization: Bearer KEY\".",
                               {{"www-authenticate", "Bearer"}})};
  }
  if (allow.empty()) {
    return {.refusal = refusal(options, 404, fmt::format("Unknown request URL: {} {}", head.method, head.path))};
  }
  if (exact == nullptr) {
    return {.refusal = refusal(options, 405, fmt::format("{} is not a method of {}", head.method, head.path),
                               {{"allow", allow + ", OPTIONS"}})};
  }
  if (exact->method == "POST" && !is_json(head.field("content-type"))) {
    return {.refusal = refusal(options, 415, "The content type must be application/json.")};
  }
  const std::optional<std::string> decoded = percent_decoded(rest);
  if (!decoded) return {.refusal = refusal(options, 400, "Malformed escape in the request path.")};
  return {.route = exact, .path_rest = *decoded, .refusal = {}};
}

}  // namespace rose::http
