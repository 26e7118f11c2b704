#include "server/http.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <random>
#include <thread>

#include "base/log.h"
#include "server/http_connection.h"

namespace rose::http {

class Server::Core : public std::enable_shared_from_this<Server::Core> {
 public:
  Core(ServerOptions options, std::vector<Route> routes)
      : shared_(std::make_shared<ServerShared>(std::move(options), std::move(routes))),
        acceptor_(shared_->io),
        retry_(shared_->io),
        work_(asio::make_work_guard(shared_->io)) {
    std::random_device random;
    shared_->boot = random();
    listen();
  }

  int port() const { return port_; }
  int in_flight() const { return shared_->in_flight; }
  int connections() const { return shared_->connections; }

  void start() {
    accept();
    for (int i = 0; i < shared_->options.io_threads; ++i) threads_.emplace_back([this] { shared_->io.run(); });
  }

  void stop() {
    if (stopped_.exchange(true)) return;
    asio::post(shared_->io, [self = shared_from_this()] {
      ErrorCode ignored;
      self->acceptor_.close(ignored);
      self->retry_.cancel();
    });
    std::vector<std::shared_ptr<Connection>> open;  // released after the lock: their destructors take it
    {
      const std::lock_guard lock(shared_->mutex);
      for (Connection* connection : shared_->open) open.push_back(connection->weak_from_this().lock());
    }
    for (const auto& connection : open) {
      if (connection) connection->close_soon();
    }
    open.clear();
    shared_->endpoint_pool.stop();
    shared_->endpoint_pool.join();
    work_.reset();
    if (threads_.empty()) shared_->io.run();  // never started
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void listen() {
    const ServerOptions& options = shared_->options;
    const std::string where = fmt::format("{}:{}", options.host, options.port);
    ErrorCode error;
    Tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, error);
    if (error || found.empty()) throw StartError(fmt::format("cannot listen on {}: {}", where, error.message()), 5);
    const Tcp::endpoint endpoint = found.begin()->endpoint();
    shared_->loopback = endpoint.address().is_loopback();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(1024, error);
    if (error == asio::error::address_in_use) {
      throw StartError(fmt::format("{} is in use by another program", where), 5);
    }
    if (error) throw StartError(fmt::format("cannot listen on {}: {}", where, error.message()), 5);
    port_ = acceptor_.local_endpoint().port();
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(shared_->io),
                           [self = shared_from_this()](ErrorCode error, Tcp::socket socket) {
                             if (self->stopped_ || error == asio::error::operation_aborted) return;
                             if (!error) {
                               self->add(std::move(socket));
                               return self->accept();
                             }
                             // Out of descriptors or memory: give connections time to end instead of spinning.
                             spdlog::warn("accept: {}", error.message());
                             self->retry_.expires_after(std::chrono::milliseconds(100));
                             self->retry_.async_wait([self](ErrorCode cancelled) {
                               if (!cancelled && !self->stopped_) self->accept();
                             });
                           });
  }

  void add(Tcp::socket socket) {
    auto connection = std::make_shared<Connection>(std::move(socket), shared_);
    asio::post(connection->strand(), [connection] { connection->start(); });
  }

  std::shared_ptr<ServerShared> shared_;
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopped_{false};
  int port_ = 0;
};

Server::Server(ServerOptions options, std::vector<Route> routes)
    : core_(std::make_shared<Core>(std::move(options), std::move(routes))) {}

Server::~Server() { core_->stop(); }

int Server::port() const { return core_->port(); }
void Server::start() { core_->start(); }
int Server::requests_in_flight() const { return core_->in_flight(); }
int Server::connections() const { return core_->connections(); }
void Server::stop() { core_->stop(); }

}  // namespace rose::http
