// One connection of the HTTP server: reads requests, hands them to endpoints, writes answers. Everything runs on the
// connection's strand. Included by http.cc and http_connection.cc alone, which pay for Asio.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "server/http.h"

namespace rose::http {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Connection;

// What connections share with their server. An answer may outlive the server, so the queue its connection lives on is
// here as well.
struct ServerShared {
  ServerShared(ServerOptions o, std::vector<Route> r)
      : options(std::move(o)),
        routes(std::move(r)),
        endpoint_pool(static_cast<std::size_t>(options.endpoint_threads)) {}

  asio::io_context io;
  const ServerOptions options;
  const std::vector<Route> routes;
  bool loopback = true;
  asio::thread_pool endpoint_pool;
  std::mutex mutex;
  std::unordered_set<Connection*> open;  // guarded by mutex; each leaves it in its destructor
  std::atomic<int> connections{0};
  std::atomic<int> turned_away{0};  // of connections: over the limit, being told so
  std::atomic<int> in_flight{0};
  std::atomic<std::uint64_t> next_request{1};
  std::uint64_t boot = 0;  // makes request ids differ between starts
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, std::shared_ptr<ServerShared> shared);
  ~Connection();
  void start();
  void close_soon();  // from any thread
  auto strand() { return socket_.get_executor(); }

  // Called on the strand by the reply of request `serial`; nothing happens if that request is over.
  void send(std::uint64_t serial, Response response);
  void begin_events(std::uint64_t serial, Fields fields);
  void write_event(std::uint64_t serial, std::string event);
  void end_events(std::uint64_t serial);
  void on_abandoned(std::uint64_t serial, std::function<void()> left);

 private:
  enum class State { kIdle, kHead, kBody, kReply, kFlush, kLinger, kClosed };

  bool replying(std::uint64_t serial) const { return state_ == State::kReply && serial == serial_; }
  void advance();
  bool advance_head();
  bool advance_body();
  void begin_request(Head head);
  void run_endpoint();
  void refuse(int status, std::string_view message);  // and close: where the next request begins is not known
  void respond(Response response);
  void append_head(int status, const Fields& fields);
  void append_chunk(std::string_view bytes);
  void start_read();
  void on_readable(ErrorCode error);
  void start_write();
  void on_written(ErrorCode error, std::size_t bytes);
  void end_exchange(int status);
  void finish_reply();
  void abandon();
  void linger();
  void close();
  Time deadline() const;
  void refresh_timer();
  void on_deadline();

  std::shared_ptr<ServerShared> shared_;  // first: the socket's queue lives in it
  Tcp::socket socket_;
  const Limits& limits_;
  asio::steady_timer timer_;
  Time timer_expiry_ = Time::max();

  State state_ = State::kIdle;
  Time opened_at_, state_since_, last_write_;
  bool reading_ = false;
  bool ended_ = false;        // the client has shut its sending side down
  std::string input_;         // read, not yet used
  std::size_t searched_ = 0;  // of input_, for the end of the head
  std::size_t lingered_ = 0;

  Request request_;
  const Route* route_ = nullptr;
  std::optional<BodyDecoder> decoder_;
  std::uint64_t serial_ = 0;
  int requests_ = 0;
  std::size_t request_bytes_ = 0;
  bool exchange_open_ = false;
  bool turned_away_ = false;
  bool counted_ = false;  // in shared_->in_flight

  int status_ = 0;
  bool events_ = false;
  bool chunked_out_ = false;
  bool keep_alive_ = true;
  bool linger_after_ = false;
  std::string out_, writing_;
  std::size_t written_ = 0;  // of writing_
  std::size_t response_bytes_ = 0;
  bool writing_now_ = false;
  std::function<void()> left_;
};

}  // namespace rose::http
