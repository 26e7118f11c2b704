// An HTTP/1.1 server that moves bytes and knows no endpoint: connections, limits, keep-alive, server-sent events with
// back-pressure, clients that leave. Endpoints are a table of routes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/api_keys.h"
#include "server/http_body.h"
#include "server/http_head.h"

namespace rose::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

struct Request {
  Head head;
  std::string body = {};
  std::string id = {};         // x-request-id: the client's if it is well formed, else ours
  std::string path_rest = {};  // of a route that ends in "/*": what stood there, decoded
  Time arrived{};              // when its head was complete
};

struct Response {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  Fields fields = {};
  bool close = false;  // end the connection after it
};

// The answer to one request: one send(), or begin_events(), write_event()s, end_events(). Callable from any thread;
// calls from one thread keep their order. After the client has left, all of it does nothing.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(Response response) = 0;
  virtual void begin_events(Fields fields) = 0;
  virtual void write_event(std::string event) = 0;  // "data: ...\n\n", whole events only
  virtual void end_events() = 0;

  // Runs `work` on the connection's own queue, never two at a time; also after the client has left.
  virtual void post(std::function<void()> work) = 0;
  // Runs `left` on that queue if the client leaves, or reads too slowly, before the answer is complete; once.
  virtual void on_abandoned(std::function<void()> left) = 0;
};

using Endpoint = std::function<void(Request request, std::shared_ptr<Reply> reply)>;

struct Route {
  std::string method;  // "GET" answers HEAD too
  std::string path;    // exact, or with "/*" at its end
  Endpoint endpoint;
  bool cheap = false;  // answered at once by the io thread; else by the endpoint threads
  bool open = false;   // needs no API key
};

struct Limits {
  HeadLimits head;
  BodyLimits body;
  double head_s = 10;         // a head must be whole this long after its first byte
  double body_s = 60;         // likewise a body; and after 10 s it must come at 1 KiB/s or more
  double idle_s = 75;         // between requests
  double age_s = 3600;        // then the connection ends with its next answer
  double write_stall_s = 30;  // no byte accepted by the client for so long: it has left
  double heartbeat_s = 15;    // a comment in an event stream that has been silent for so long
  double linger_s = 5;        // after an early answer: read and drop what is still coming
  std::size_t linger_bytes_max = 32 << 20;
  std::size_t read_ahead_bytes_max = 32 << 10;  // of pipelined requests
  std::size_t stream_bytes_max = 1 << 20;       // events waiting for a slow reader; more: it has left
  int socket_send_bytes = 64 << 10;             // what the kernel may hold for a stream
  int requests_per_connection_max = 10'000;
  int connections_max = 4096;  // more: 503
};

// One finished exchange, for logs and counters.
struct Exchange {
  std::string_view method;
  std::string_view route;  // the route's path, or "" when none matched: a closed set of labels
  std::string_view path;
  std::string_view request_id;
  int status = 0;  // 499: the client left before the answer was complete
  double seconds = 0;
  std::size_t request_bytes = 0;  // body
  std::size_t response_bytes = 0;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  int io_threads = 2;
  int endpoint_threads = 2;
  Limits limits;
  ApiKeys keys;
  std::vector<std::string> allowed_origins;  // browsers' origins that may read answers; "*": any. Empty: none
  std::vector<std::string> allowed_hosts;    // names in Host besides IP addresses and localhost; "*": any
  // A client that shuts its sending side down has left. (A FIN does not say whether the client still reads. Of HTTP
  // clients only hand-written ones do, so cancelling is the better guess; false keeps the answer going.)
  bool cancel_on_half_close = true;
  std::function<std::string(int status, std::string_view message)> error_body;  // JSON
  std::function<void(const Exchange&)> on_exchange;                             // from an io thread; must be quick
};

class Server {
 public:
  // Binds and listens; throws StartError (exit code 5) when the address cannot be had.
  Server(ServerOptions options, std::vector<Route> routes);
  ~Server();

  int port() const;
  void start();
  // Requests whose answer is not complete, cheap routes aside.
  int requests_in_flight() const;
  int connections() const;
  // Closes the listener and every connection, joins the threads. Answers in progress end as if their client had left.
  void stop();

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace rose::http
