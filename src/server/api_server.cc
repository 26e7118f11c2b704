#include "server/api_server.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "server/openai/chat_completions.h"
#include "server/openai/completions.h"
#include "server/openai/errors.h"
#include "server/openai/models.h"
#include "server/openai/tokenize.h"

namespace rose {
namespace {

using Reply = std::shared_ptr<http::Reply>;

constexpr std::string_view kLanding = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>rose</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto">
<h1>rose</h1>
<p>An OpenAI-compatible server for gpt-oss models. Point any OpenAI client at <code>/v1</code> of this address.</p>
<p><a href="/v1/models">/v1/models</a> &middot; <a href="/health">/health</a> &middot; <a href="/metrics">/metrics</a>
&middot; <a href="/version">/version</a></p>
</body></html>
)";

}  // namespace

ApiServer::ApiServer(ApiServerOptions options)
    : access_log_(options.access_log), stalled_s_(options.stalled_s), service_(std::move(options.service)) {
  options.http.error_body = [](int status, std::string_view message) {
    return openai::error_body({status, std::string(message), "", ""});
  };
  options.http.on_exchange = [this](const http::Exchange& exchange) { on_exchange(exchange); };
  http_ = std::make_unique<http::Server>(std::move(options.http), routes());
}

ApiServer::~ApiServer() { stop(); }

void ApiServer::start() { http_->start(); }
int ApiServer::port() const { return http_->port(); }
void ApiServer::loading(double fraction) { loaded_ = fraction; }
void ApiServer::begin_drain() { draining_ = true; }
int ApiServer::requests_in_flight() const { return http_->requests_in_flight(); }

void ApiServer::attach(openai::ServedModel model) {
  service_.set_model(std::make_shared<const openai::ServedModel>(std::move(model)));
}

void ApiServer::stop() {
  draining_ = true;
  if (const auto model = service_.model()) model->engine->stop(Clock::now());
  // The last events are on their way through the connections' queues: give the sockets a moment to take them.
  for (int i = 0; i < 100 && http_->requests_in_flight() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  http_->stop();
}

std::vector<http::Route> ApiServer::routes() {
  const auto with_service = [this](void (*endpoint)(openai::Service&, http::Request, Reply)) {
    return [this, endpoint](http::Request request, Reply reply) {
      endpoint(service_, std::move(request), std::move(reply));
    };
  };
  const auto text = [](std::string body, std::string type) {
    return [body = std::move(body), type = std::move(type)](http::Request, Reply reply) {
      reply->send({.body = body, .content_type = type});
    };
  };
  const std::string version = json::serialize(json::Object{{"name", "rose"}, {"version", service_.options().version}});
  const auto ready = [](const Health& h) { return h.ready; };
  return {
      {.method = "POST", .path = "/v1/chat/completions", .endpoint = with_model(openai::chat_completions)},
      {.method = "POST", .path = "/v1/completions", .endpoint = with_model(openai::completions)},
      {.method = "POST", .path = "/tokenize", .endpoint = with_model(openai::tokenize)},
      {.method = "POST", .path = "/detokenize", .endpoint = with_model(openai::detokenize)},
      {.method = "GET", .path = "/v1/models", .endpoint = with_service(openai::list_models), .cheap = true},
      {.method = "GET", .path = "/v1/models/*", .endpoint = with_service(openai::one_model), .cheap = true},
      {.method = "GET", .path = "/health", .endpoint = health(ready), .cheap = true, .open = true},
      {.method = "GET", .path = "/ping", .endpoint = health(ready), .cheap = true, .open = true},
      {.method = "GET", .path = "/health/ready", .endpoint = health(ready), .cheap = true, .open = true},
      {.method = "GET",
       .path = "/health/live",
       .endpoint = health([](const Health& h) { return h.live; }),
       .cheap = true,
       .open = true},
      {.method = "GET",
       .path = "/health/startup",
       .endpoint = health([](const Health& h) { return h.started; }),
       .cheap = true,
       .open = true},
      {.method = "GET",
       .path = "/metrics",
       .endpoint = [this](http::Request, Reply reply) { answer_metrics(*reply); },
       .cheap = true},
      {.method = "GET", .path = "/version", .endpoint = text(version, "application/json"), .cheap = true},
      {.method = "GET",
       .path = "/",
       .endpoint = text(std::string(kLanding), "text/html; charset=utf-8"),
       .cheap = true},
  };
}

http::Endpoint ApiServer::with_model(std::function<void(openai::Service&, http::Request, Reply)> endpoint) {
  return [this, endpoint = std::move(endpoint)](http::Request request, Reply reply) {
    if (draining_) {
      http::Response response = openai::error_response({503, "The server is shutting down.", "", "shutting_down"});
      response.close = true;
      return reply->send(std::move(response));
    }
    if (!service_.model()) {
      const double loaded = loaded_;
      return reply->send(openai::error_response(
          {503, fmt::format("The model is loading: {:.0f} %.", loaded * 100), "", "model_loading"},
          json::Object{{"progress", loaded}}));
    }
    endpoint(service_, std::move(request), std::move(reply));
  };
}

ApiServer::Health ApiServer::health_now() const {
  Health health;
  const auto model = service_.model();
  health.started = model != nullptr;
  if (model == nullptr) {
    health.status = "loading";
    return health;
  }
  const EngineStats stats = model->engine->stats();
  const bool busy = stats.requests_running + stats.requests_waiting > 0;
  const bool stalled = busy && stats.heartbeat_age_s > stalled_s_;
  health.live = !busy || stats.heartbeat_age_s < 2 * stalled_s_;
  health.ready = !stalled && !draining_;
  health.status = stalled ? "stalled" : draining_ ? "draining" : "ok";
  return health;
}

http::Endpoint ApiServer::health(std::function<bool(const Health&)> good) {
  return [this, good = std::move(good)](http::Request, Reply reply) {
    const Health now = health_now();
    json::Object body{{"status", now.status}};
    if (!now.started) body["progress"] = loaded_.load();
    http::Response response{.status = good(now) ? 200 : 503, .body = json::serialize(body)};
    if (response.status == 503) response.fields.emplace_back("retry-after", "1");
    reply->send(std::move(response));
  };
}

void ApiServer::answer_metrics(http::Reply& reply) {
  std::string text;
  if (const auto model = service_.model()) {
    const EngineStats stats = model->engine->stats();
    const EngineLimits limits = model->engine->limits();
    text = service_.metrics().text(&stats, &limits);
  } else {
    text = service_.metrics().text(nullptr, nullptr);
  }
  reply.send({.body = std::move(text), .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

void ApiServer::on_exchange(const http::Exchange& exchange) {
  service_.metrics().exchange(exchange);
  const bool probe = exchange.route.starts_with("/health") || exchange.route == "/metrics" || exchange.route == "/ping";
  if (!access_log_ || probe) return;
  std::string path;  // a client's bytes: printable ASCII by the head's rules, and cut
  for (const char c : exchange.path.substr(0, 200)) path += c == '"' || c == '\\' ? '_' : c;
  spdlog::info("{} {} {} {:.1f} ms, {} B in, {} B out, {}", exchange.method, path, exchange.status,
               exchange.seconds * 1e3, exchange.request_bytes, exchange.response_bytes, exchange.request_id);
}

}  // namespace rose
