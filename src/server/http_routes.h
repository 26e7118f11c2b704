// Decides what happens to a request once its head is known and before its body is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http.h"

namespace rose::http {

struct Routing {
  const Route* route = nullptr;  // null: answer `refusal`
  std::string path_rest = {};
  Response refusal = {};  // for OPTIONS, the answer itself
};

// Order: Host, Origin, OPTIONS, API key, path, method, media type. `loopback`: the server listens on a loopback
// address, where only Host tells a web page that rebinds its own name from a local program.
Routing choose_route(const Head& head, const std::vector<Route>& routes, const ServerOptions& options, bool loopback);

// Access-Control-* fields of an answer to this request; none unless its origin is allowed.
Fields cors_fields(const Head& head, const ServerOptions& options);

}  // namespace rose::http
