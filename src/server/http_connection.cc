#include "server/http_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <ctime>

#include "base/log.h"
#include "server/http_routes.h"

namespace rose::http {
namespace {

std::chrono::steady_clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

constexpr int kTurnedAwayMax = 256;  // more are closed without a word

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, size);
}

// A client's id goes into logs and headers, so only plain characters of it are taken.
bool usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '\\' && c != ',' && c != ';';
  });
}

class ConnectionReply final : public Reply {
 public:
  ConnectionReply(std::shared_ptr<Connection> connection, std::uint64_t serial)
      : connection_(std::move(connection)), serial_(serial) {}

  void send(Response response) override {
    asio::dispatch(connection_->strand(),
                   [c = connection_, s = serial_, r = std::move(response)]() mutable { c->send(s, std::move(r)); });
  }
  void begin_events(Fields fields) override {
    asio::dispatch(connection_->strand(), [c = connection_, s = serial_, f = std::move(fields)]() mutable {
      c->begin_events(s, std::move(f));
    });
  }
  void write_event(std::string event) override {
    asio::dispatch(connection_->strand(),
                   [c = connection_, s = serial_, e = std::move(event)]() mutable { c->write_event(s, std::move(e)); });
  }
  void end_events() override {
    asio::dispatch(connection_->strand(), [c = connection_, s = serial_] { c->end_events(s); });
  }
  void post(std::function<void()> work) override { asio::post(connection_->strand(), std::move(work)); }
  void on_abandoned(std::function<void()> left) override {
    asio::dispatch(connection_->strand(),
                   [c = connection_, s = serial_, l = std::move(left)]() mutable { c->on_abandoned(s, std::move(l)); });
  }

 private:
  std::shared_ptr<Connection> connection_;
  std::uint64_t serial_;
};

}  // namespace

Connection::Connection(Tcp::socket socket, std::shared_ptr<ServerShared> shared)
    : shared_(std::move(shared)),
      socket_(std::move(socket)),
      limits_(shared_->options.limits),
      timer_(socket_.get_executor()),
      opened_at_(Clock::now()),
      state_since_(opened_at_),
      last_write_(opened_at_) {
  ++shared_->connections;
  const std::lock_guard lock(shared_->mutex);
  shared_->open.insert(this);
}

Connection::~Connection() {
  if (counted_) --shared_->in_flight;
  if (turned_away_) --shared_->turned_away;
  --shared_->connections;
  const std::lock_guard lock(shared_->mutex);
  shared_->open.erase(this);
}

void Connection::start() {
  ErrorCode ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(Tcp::no_delay(true), ignored);
  // Back-pressure must be felt after tens of kilobytes, not after the megabytes a kernel buffers by default.
  socket_.set_option(asio::socket_base::send_buffer_size(limits_.socket_send_bytes), ignored);
  const int not_sent = limits_.socket_send_bytes / 4;
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &not_sent, sizeof not_sent);
  if (shared_->connections - shared_->turned_away <= limits_.connections_max) return advance();
  turned_away_ = true;
  if (++shared_->turned_away > kTurnedAwayMax) return close();
  refuse(503, "Too many connections.");
}

void Connection::close_soon() {
  asio::post(strand(), [self = shared_from_this()] {
    self->abandon();
    self->close();
  });
}

// ---- reading

void Connection::advance() {
  while (true) {
    switch (state_) {
      case State::kIdle:
        if (input_.empty()) {
          if (ended_) return close();
          refresh_timer();
          return start_read();
        }
        state_ = State::kHead;
        state_since_ = Clock::now();
        searched_ = 0;
        break;
      case State::kHead:
        if (!advance_head()) return;
        break;
      case State::kBody:
        if (!advance_body()) return;
        break;
      case State::kReply:
      case State::kFlush:
        refresh_timer();
        if (input_.size() < limits_.read_ahead_bytes_max) start_read();
        return;
      case State::kLinger:
        input_.clear();
        refresh_timer();
        return start_read();
      case State::kClosed:
        return;
    }
  }
}

// True: go on; false: more bytes are needed.
bool Connection::advance_head() {
  const std::optional<std::size_t> end = head_end(input_, searched_);
  if (!end) {
    // Line ends are CRLF and the first line is short, so much can be refused before the blank line has come.
    for (std::size_t i = searched_; i < input_.size(); ++i) {
      if (input_[i] == '\0' || (input_[i] == '\n' && (i == 0 || input_[i - 1] != '\r'))) {
        refuse(400, "Malformed request head.");
        return false;
      }
    }
    searched_ = input_.size();
    if (searched_ > limits_.head.line_bytes_max && input_.find('\r') > limits_.head.line_bytes_max) {
      refuse(414, "The request line is too long.");
      return false;
    }
    if (searched_ > limits_.head.head_bytes_max) {
      refuse(431, "The request head is too large.");
      return false;
    }
    if (ended_) {
      close();
      return false;
    }
    refresh_timer();
    start_read();
    return false;
  }
  Result<Head> head = parse_head(std::string_view(input_).substr(0, *end), limits_.head);
  if (!head) {
    refuse(head.error().status, head.error().message);
    return false;
  }
  input_.erase(0, *end);
  begin_request(std::move(*head));
  return true;
}

bool Connection::advance_body() {
  input_.erase(0, decoder_->feed(input_, request_.body));
  if (decoder_->error()) {
    refuse(decoder_->error()->status, decoder_->error()->message);
    return false;
  }
  if (decoder_->done()) {
    run_endpoint();
    return true;
  }
  if (ended_) {
    end_exchange(499);
    close();
    return false;
  }
  refresh_timer();
  start_read();
  return false;
}

void Connection::begin_request(Head head) {
  ++serial_;
  ++requests_;
  exchange_open_ = true;
  request_ = Request{.head = std::move(head), .body = "", .id = "", .path_rest = "", .arrived = Clock::now()};
  const std::string_view id = request_.head.field("x-request-id");
  request_.id = usable_id(id) ? std::string(id)
                              : fmt::format("req-{:08x}{:08x}", shared_->boot & 0xffffffffu, shared_->next_request++);
  keep_alive_ = request_.head.keep_alive && requests_ < limits_.requests_per_connection_max &&
                seconds_between(opened_at_, request_.arrived) < limits_.age_s;
  response_bytes_ = 0;
  status_ = 0;

  Routing routing = choose_route(request_.head, shared_->routes, shared_->options, shared_->loopback);
  route_ = routing.route;
  request_.path_rest = std::move(routing.path_rest);
  if (route_ == nullptr) {
    if (request_.head.has_body()) {
      keep_alive_ = false;
      linger_after_ = true;
    }
    return respond(std::move(routing.refusal));
  }
  decoder_ = request_.head.chunked ? BodyDecoder::chunked(limits_.body)
                                   : BodyDecoder::of_length(request_.head.content_length, limits_.body);
  state_ = State::kBody;
  state_since_ = Clock::now();
  if (request_.head.expects_continue && request_.head.has_body() && input_.empty() && !decoder_->error()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    start_write();
  }
}

void Connection::run_endpoint() {
  state_ = State::kReply;
  state_since_ = Clock::now();
  request_bytes_ = request_.body.size();
  auto reply = std::make_shared<ConnectionReply>(shared_from_this(), serial_);
  Request request{.head = request_.head,
                  .body = std::exchange(request_.body, {}),
                  .id = request_.id,
                  .path_rest = request_.path_rest,
                  .arrived = request_.arrived};
  auto run = [endpoint = &route_->endpoint, request = std::move(request), reply,
              options = &shared_->options]() mutable {
    try {
      (*endpoint)(std::move(request), reply);
    } catch (const std::exception& error) {  // the last net under our own mistakes, memory included: one request fails
      spdlog::error("request failed: {}", error.what());
      reply->send({.status = 500, .body = options->error_body(500, "Internal error."), .fields = {}});
    }
  };
  if (route_->cheap) return run();
  counted_ = true;
  ++shared_->in_flight;
  asio::post(shared_->endpoint_pool, std::move(run));
}

void Connection::start_read() {
  if (reading_ || ended_ || state_ == State::kClosed) return;
  reading_ = true;
  // Waiting needs no buffer, so an idle connection costs none.
  socket_.async_wait(Tcp::socket::wait_read,
                     [self = shared_from_this()](ErrorCode error) { self->on_readable(error); });
}

// A read stays open while an answer is under way: its end is how we learn that the client has left.
void Connection::on_readable(ErrorCode error) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  std::array<char, 16 << 10> space;
  std::size_t bytes = 0;
  if (!error) bytes = socket_.read_some(asio::buffer(space), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) return start_read();
  input_.append(space.data(), bytes);
  if (error) {
    ended_ = true;
    const bool half_closed = error == asio::error::eof;
    if (state_ == State::kReply && (!half_closed || shared_->options.cancel_on_half_close)) abandon();
    if (!half_closed || state_ == State::kLinger) return close();
  }
  if (state_ == State::kLinger) {
    lingered_ += bytes;
    if (lingered_ > limits_.linger_bytes_max) return close();
  }
  advance();
}

// ---- answering

void Connection::refuse(int status, std::string_view message) {
  if (state_ == State::kClosed) return;
  if (!exchange_open_) {  // the head itself was at fault
    request_ = Request{};
    request_.id = fmt::format("req-{:08x}{:08x}", shared_->boot & 0xffffffffu, shared_->next_request++);
    request_.arrived = Clock::now();
    route_ = nullptr;
    exchange_open_ = true;
    ++serial_;
  }
  keep_alive_ = false;
  linger_after_ = true;
  Response response{.status = status, .body = shared_->options.error_body(status, message), .fields = {}};
  if (status == 503) response.fields.emplace_back("retry-after", "1");
  respond(std::move(response));
  advance();
}

void Connection::append_head(int status, const Fields& fields) {
  status_ = status;
  fmt::format_to(std::back_inserter(out_), "HTTP/1.1 {} {}\r\ndate: {}\r\nx-request-id: {}\r\n", status, reason(status),
                 http_date(), request_.id);
  const Fields cors = cors_fields(request_.head, shared_->options);
  for (const Fields* list : {&fields, &cors}) {
    for (const auto& [name, value] : *list) {
      const bool clean = value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos;
      if (clean) fmt::format_to(std::back_inserter(out_), "{}: {}\r\n", name, value);
    }
  }
  if (!keep_alive_) out_ += "connection: close\r\n";
  if (keep_alive_ && request_.head.minor_version == 0) out_ += "connection: keep-alive\r\n";
}

void Connection::respond(Response response) {
  if (response.close) keep_alive_ = false;
  if (!response.content_type.empty()) response.fields.emplace_back("content-type", response.content_type);
  if (response.status != 204) response.fields.emplace_back("content-length", std::to_string(response.body.size()));
  append_head(response.status, response.fields);
  out_ += "\r\n";
  if (request_.head.method != "HEAD") {
    out_ += response.body;
    response_bytes_ = response.body.size();
  }
  state_ = State::kFlush;
  left_ = nullptr;
  start_write();
}

void Connection::send(std::uint64_t serial, Response response) {
  if (!replying(serial) || events_) return;
  respond(std::move(response));
  refresh_timer();
}

void Connection::begin_events(std::uint64_t serial, Fields fields) {
  if (!replying(serial) || events_) return;
  events_ = true;
  chunked_out_ = request_.head.minor_version == 1;
  if (!chunked_out_) keep_alive_ = false;
  fields.emplace_back("content-type", "text/event-stream; charset=utf-8");
  fields.emplace_back("cache-control", "no-cache");
  fields.emplace_back("x-accel-buffering", "no");  // nginx would hold events back
  if (chunked_out_) fields.emplace_back("transfer-encoding", "chunked");
  append_head(200, fields);
  out_ += "\r\n";
  start_write();
}

void Connection::append_chunk(std::string_view bytes) {
  response_bytes_ += bytes.size();
  if (chunked_out_) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", bytes.size());
  out_ += bytes;
  if (chunked_out_) out_ += "\r\n";
}

void Connection::write_event(std::uint64_t serial, std::string event) {
  if (!replying(serial) || !events_ || event.empty()) return;
  append_chunk(event);
  start_write();
  if (out_.size() + writing_.size() - written_ > limits_.stream_bytes_max) {
    abandon();
    close();
  }
}

void Connection::end_events(std::uint64_t serial) {
  if (!replying(serial) || !events_) return;
  if (chunked_out_) out_ += "0\r\n\r\n";
  state_ = State::kFlush;
  left_ = nullptr;
  start_write();
  if (out_.empty() && !writing_now_) finish_reply();
}

void Connection::on_abandoned(std::uint64_t serial, std::function<void()> left) {
  if (replying(serial)) {
    left_ = std::move(left);
  } else if (serial != serial_ || state_ == State::kClosed) {
    left();
  }
}

// ---- writing

void Connection::start_write() {
  if (writing_now_ || state_ == State::kClosed) return;
  if (written_ == writing_.size()) {
    if (out_.empty()) return;
    writing_.swap(out_);
    out_.clear();
    written_ = 0;
    last_write_ = Clock::now();
  }
  writing_now_ = true;
  socket_.async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](ErrorCode error, std::size_t bytes) { self->on_written(error, bytes); });
  refresh_timer();
}

void Connection::on_written(ErrorCode error, std::size_t bytes) {
  writing_now_ = false;
  if (state_ == State::kClosed) return;
  if (error) {
    abandon();
    return close();
  }
  written_ += bytes;
  last_write_ = Clock::now();
  if (written_ < writing_.size() || !out_.empty()) return start_write();
  if (state_ == State::kFlush) return finish_reply();
  refresh_timer();
}

void Connection::end_exchange(int status) {
  if (!exchange_open_) return;
  exchange_open_ = false;
  if (counted_) {
    counted_ = false;
    --shared_->in_flight;
  }
  if (!shared_->options.on_exchange) return;
  shared_->options.on_exchange({.method = request_.head.method,
                                .route = route_ != nullptr ? std::string_view(route_->path) : std::string_view(),
                                .path = request_.head.path,
                                .request_id = request_.id,
                                .status = status,
                                .seconds = seconds_between(request_.arrived, Clock::now()),
                                .request_bytes = request_bytes_,
                                .response_bytes = response_bytes_});
}

void Connection::finish_reply() {
  end_exchange(status_);
  events_ = false;
  left_ = nullptr;
  if (linger_after_) return linger();
  if (!keep_alive_ || ended_) return close();
  state_ = State::kIdle;
  state_since_ = Clock::now();
  advance();
}

// The client has left before its answer was complete.
void Connection::abandon() {
  if (state_ != State::kReply) return end_exchange(499);
  ++serial_;
  std::function<void()> left = std::exchange(left_, nullptr);
  end_exchange(499);
  state_ = State::kFlush;  // nothing more is taken from the endpoint
  if (left) left();
  close();
}

// An answer sent before the request was read would be lost to the reset that closing with unread bytes causes.
void Connection::linger() {
  ErrorCode ignored;
  socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  state_ = State::kLinger;
  state_since_ = Clock::now();
  if (ended_) return close();
  advance();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  end_exchange(499);
  state_ = State::kClosed;
  ErrorCode ignored;
  timer_.cancel();
  socket_.shutdown(Tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

// ---- deadlines

Time Connection::deadline() const {
  const bool write_waits = writing_now_;
  switch (state_) {
    case State::kIdle:
      return state_since_ + to_duration(limits_.idle_s);
    case State::kHead:
      return state_since_ + to_duration(limits_.head_s);
    case State::kBody: {
      const double allowed = 10 + static_cast<double>(request_.body.size()) / 1024;
      return state_since_ + to_duration(std::min(limits_.body_s, allowed));
    }
    case State::kReply:
      if (write_waits) return last_write_ + to_duration(limits_.write_stall_s);
      return events_ ? last_write_ + to_duration(limits_.heartbeat_s) : Time::max();
    case State::kFlush:
      return last_write_ + to_duration(limits_.write_stall_s);
    case State::kLinger:
      return state_since_ + to_duration(limits_.linger_s);
    case State::kClosed:
      break;
  }
  return Time::max();
}

// Deadlines mostly move away, so the timer is left to fire early and set again, rather than moved with each byte.
void Connection::refresh_timer() {
  const Time at = deadline();
  if (at >= timer_expiry_ || state_ == State::kClosed) return;
  timer_expiry_ = at;
  timer_.expires_at(at);
  timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (error || !self || self->state_ == State::kClosed) return;
    self->timer_expiry_ = Time::max();
    if (Clock::now() >= self->deadline()) self->on_deadline();
    self->refresh_timer();
  });
}

void Connection::on_deadline() {
  switch (state_) {
    case State::kHead:
      return refuse(408, "The request head took too long.");
    case State::kBody:
      return refuse(408, "The request body took too long.");
    case State::kReply:
      if (!writing_now_) {  // silent stream
        append_chunk(": still here\n\n");
        return start_write();
      }
      abandon();
      return;
    default:
      return close();
  }
}

}  // namespace rose::http
