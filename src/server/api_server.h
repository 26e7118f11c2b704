// The OpenAI-compatible server: the HTTP server, its routes, and the model once there is one. It answers from the first
// second: while the model loads, API routes say 503 and how far it is.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/openai/service.h"

namespace rose {

struct ApiServerOptions {
  http::ServerOptions http;  // error_body and on_exchange are set here
  openai::ServiceOptions service;
  bool access_log = true;
  double stalled_s = 60;  // engine busy but not turning for so long: not ready; twice: not live
};

class ApiServer {
 public:
  // Binds; throws StartError (exit code 5) if the address is taken. Answers after start().
  explicit ApiServer(ApiServerOptions options);
  ~ApiServer();

  void start();
  int port() const;

  // `fraction` of the weights, 0 to 1. From any thread.
  void loading(double fraction);
  void attach(openai::ServedModel model);

  // New requests are refused from now on (503), readiness says no.
  void begin_drain();
  int requests_in_flight() const;
  // Ends what is left: the engine stops, running answers get a last event, connections close. Blocks.
  void stop();

 private:
  struct Health {
    bool live = true, ready = false, started = false;
    std::string status;
  };

  std::vector<http::Route> routes();
  http::Endpoint with_model(
      std::function<void(openai::Service&, http::Request, std::shared_ptr<http::Reply>)> endpoint);
  http::Endpoint health(std::function<bool(const Health&)> good);
  Health health_now() const;
  void answer_metrics(http::Reply& reply);
  void on_exchange(const http::Exchange& exchange);

  const bool access_log_;
  const double stalled_s_;
  openai::Service service_;
  std::atomic<double> loaded_{0};
  std::atomic<bool> draining_{false};
  std::unique_ptr<http::Server> http_;
};

}  // namespace rose
