#include "server/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "server/testing/raw_client.h"

namespace rose::http {
namespace {

using rose::testing::get;
using rose::testing::post;
using rose::testing::RawClient;

bool eventually(const std::function<bool()>& condition, double timeout_s = 5) {
  const auto until = Clock::now() + std::chrono::duration<double>(timeout_s);
  while (Clock::now() < until) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string status_of(const std::string& response) {
  return response.substr(0, std::min<std::size_t>(12, response.size()));
}

// Endpoints: /echo answers with the body; /hold keeps its reply for the test; /cheap; /open needs no key; /tree/*.
class HttpTest : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.port = 0;
    options.error_body = [](int status, std::string_view message) {
      return fmt::format("{{{}: {}}}", status, message);
    };
    options.on_exchange = [this](const Exchange& exchange) {
      const std::lock_guard lock(mutex_);
      statuses_.push_back(exchange.status);
    };
    std::vector<Route> routes;
    routes.push_back({.method = "POST", .path = "/echo", .endpoint = [](Request request, std::shared_ptr<Reply> reply) {
                        reply->send({.body = request.body, .content_type = "text/plain"});
                      }});
    routes.push_back({.method = "POST", .path = "/hold", .endpoint = [this](Request, std::shared_ptr<Reply> reply) {
                        reply->on_abandoned([this] { ++abandoned_; });
                        const std::lock_guard lock(mutex_);
                        held_ = std::move(reply);
                      }});
    const auto name = [](const char* text) {
      return [text](Request request, std::shared_ptr<Reply> reply) {
        reply->send({.body = text + request.path_rest + request.id, .content_type = "text/plain"});
      };
    };
    routes.push_back({.method = "GET", .path = "/cheap", .endpoint = name("cheap "), .cheap = true});
    routes.push_back({.method = "GET", .path = "/open", .endpoint = name("open "), .cheap = true, .open = true});
    routes.push_back({.method = "GET", .path = "/tree/*", .endpoint = name("tree "), .cheap = true});
    routes.push_back({.method = "GET", .path = "/throws", .endpoint = [](Request, std::shared_ptr<Reply>) {
                        throw std::runtime_error("0x7ffdeadbeef in /secret/path");
                      }});
    server_ = std::make_unique<Server>(std::move(options), std::move(routes));
    server_->start();
  }

  std::shared_ptr<Reply> held() {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return held_ != nullptr;
    }));
    const std::lock_guard lock(mutex_);
    return held_;
  }
  std::vector<int> statuses() {
    const std::lock_guard lock(mutex_);
    return statuses_;
  }
  int port() const { return server_->port(); }

  std::mutex mutex_;
  std::shared_ptr<Reply> held_;
  std::vector<int> statuses_;
  std::atomic<int> abandoned_{0};
  std::unique_ptr<Server> server_;
};

TEST_F(HttpTest, ConnectionsAreKeptAndPipelinedRequestsAnsweredInOrder) {
  start();
  RawClient client(port());
  client.send(post("/echo", "one") + post("/echo", "two") + get("/cheap", "X-Request-Id: three\r\n"));
  EXPECT_TRUE(client.response().ends_with("\r\n\r\none"));
  EXPECT_TRUE(client.response().ends_with("\r\n\r\ntwo"));
  EXPECT_TRUE(client.response().ends_with("\r\n\r\ncheap three"));
  client.send(post("/echo", "four"));
  EXPECT_TRUE(client.response().ends_with("four"));
}

TEST_F(HttpTest, RequestsArriveWholeHoweverTheyAreSplit) {
  start();
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  RawClient client(port());
  for (const char c : chunked) client.send({&c, 1});
  EXPECT_TRUE(client.response().ends_with("abcde"));
  const std::string plain = post("/echo", "body");
  for (const char c : plain) client.send({&c, 1});
  EXPECT_TRUE(client.response().ends_with("body"));
}

TEST_F(HttpTest, RequestIdsAreEchoedOrMade) {
  start();
  RawClient client(port());
  client.send(get("/cheap", "X-Request-Id: abc-1\r\n"));
  EXPECT_TRUE(contains(client.response(), "x-request-id: abc-1\r\n"));
  for (const std::string& bad : {std::string(129, 'a'), std::string("a\"b"), std::string("a b"), std::string()}) {
    client.send(get("/cheap", "X-Request-Id: " + bad + "\r\n"));
    EXPECT_TRUE(contains(client.response(), "x-request-id: req-")) << bad;
  }
}

TEST_F(HttpTest, WrongPathMethodOrMediaTypeSaySo) {
  start();
  RawClient client(port());
  client.send(get("/nothing"));
  EXPECT_EQ(status_of(client.response()), "HTTP/1.1 404");
  client.send(get("/echo"));
  const std::string wrong_method = client.response();
  EXPECT_EQ(status_of(wrong_method), "HTTP/1.1 405");
  EXPECT_TRUE(contains(wrong_method, "allow: POST, OPTIONS"));
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(client.response()), "HTTP/1.1 415");
  client.send(get("/tree/a%2Fb/c"));
  EXPECT_TRUE(contains(client.response(), "tree a/b/c"));
  client.send(get("/tree/%zz"));
  EXPECT_EQ(status_of(client.response()), "HTTP/1.1 400");
}

TEST_F(HttpTest, HeadAndOptionsHaveNoBody) {
  start();
  RawClient client(port());
  client.send("HEAD /cheap HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(contains(client.receive_until("\r\n\r\n"), "content-length: "));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(client.got().ends_with("\r\n\r\n"));
  RawClient other(port());
  other.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(contains(other.receive_until("\r\n\r\n"), "HTTP/1.1 204"));
  EXPECT_TRUE(contains(other.got(), "allow: POST, OPTIONS"));
  EXPECT_FALSE(contains(other.got(), "access-control"));
}

TEST_F(HttpTest, OurOwnFailureIsA500ThatTellsNothing) {
  start();
  RawClient client(port());
  client.send(get("/throws"));
  const std::string answer = client.response();
  EXPECT_EQ(status_of(answer), "HTTP/1.1 500");
  EXPECT_FALSE(contains(answer, "0x7ff"));
  EXPECT_FALSE(contains(answer, "/secret"));
}

TEST_F(HttpTest, FramingMistakesCloseTheConnectionAndTheCanaryIsNeverAnswered) {
  start();
  const std::string canary = get("/cheap", "X-Request-Id: canary\r\n");
  for (const std::string_view attack :
       {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhello\r\n0\r\n\r\n",
        "GET /cheap HTTP/1.1\nHost: a\n\n", "GET /cheap HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", "\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    for (const bool byte_by_byte : {false, true}) {
      RawClient client(port());
      const std::string all = std::string(attack) + canary;
      if (byte_by_byte) {
        for (const char c : all) {
          if (!client.send({&c, 1})) break;
        }
      } else {
        client.send(all);
      }
      client.shut_sending_down();
      EXPECT_TRUE(client.closed()) << attack;
      EXPECT_FALSE(contains(client.got(), "canary")) << attack << client.got();
      EXPECT_FALSE(contains(client.got(), "HTTP/1.1 200")) << attack << client.got();
    }
  }
}

TEST_F(HttpTest, LimitsHoldAtTheLimitAndOneAbove) {
  ServerOptions options;
  options.limits.body.bytes_max = 1000;
  start(options);
  {
    RawClient client(port());
    client.send(post("/echo", std::string(1000, 'x')));
    EXPECT_EQ(status_of(client.response()), "HTTP/1.1 200");
  }
  {
    RawClient client(port());
    client.send(post("/echo", std::string(1001, 'x')));
    EXPECT_EQ(status_of(client.response()), "HTTP/1.1 413");
    client.shut_sending_down();
    EXPECT_TRUE(client.closed());
  }
  {
    RawClient client(port());
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
    EXPECT_EQ(status_of(client.response()), "HTTP/1.1 413");
  }
  {
    RawClient client(port());
    client.send("GET /" + std::string(10'000, 'a'));  // no end of line in sight
    EXPECT_EQ(status_of(client.response()), "HTTP/1.1 414");
  }
  {
    RawClient client(port());
    client.send("GET / HTTP/1.1\r\nX: " + std::string(40'000, 'a'));
    EXPECT_EQ(status_of(client.response()), "HTTP/1.1 431");
  }
}

TEST_F(HttpTest, SlowHeadsAndBodiesTimeOut) {
  ServerOptions options;
  options.limits.head_s = 0.1;
  options.limits.body_s = 0.1;
  options.limits.idle_s = 0.2;
  start(options);
  RawClient slow_head(port());
  RawClient slow_body(port());
  RawClient idle(port());
  slow_body.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n");
  // A byte now and then must not buy more time.
  for (int i = 0; i < 10; ++i) {
    slow_head.send("G");
    slow_body.send("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(status_of(slow_head.response()), "HTTP/1.1 408");
  EXPECT_EQ(status_of(slow_body.response()), "HTTP/1.1 408");
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(idle.got(), "");
}

TEST_F(HttpTest, ContinueIsSentOnlyToRequestsThatMayGoOn) {
  ServerOptions options;
  options.limits.body.bytes_max = 10;
  start(options);
  RawClient good(port());
  good.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_TRUE(contains(good.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue"));
  good.send("abc");
  EXPECT_TRUE(contains(good.receive_until("abc"), "HTTP/1.1 200 OK"));
  for (const std::string_view head :
       {"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n",
        "POST /none HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"}) {
    RawClient bad(port());
    bad.send(head);
    bad.receive_until("\r\n\r\n");
    EXPECT_FALSE(contains(bad.got(), "100 Continue")) << bad.got();
    EXPECT_TRUE(contains(bad.got(), "HTTP/1.1 4")) << bad.got();
  }
}

TEST_F(HttpTest, ALeavingClientIsNoticedWithinFiftyMilliseconds) {
  start();
  for (const bool reset : {false, true}) {
    for (const bool streaming : {false, true}) {
      {
        const std::lock_guard lock(mutex_);
        held_ = nullptr;
      }
      RawClient client(port());
      client.send(post("/hold", ""));
      const auto reply = held();
      if (streaming) {
        reply->begin_events({});
        reply->write_event("data: 1\n\n");
        client.receive_until("data: 1");
      }
      const int before = abandoned_;
      reset ? client.reset() : client.close();
      const Time closed = Clock::now();
      EXPECT_TRUE(eventually([&] { return abandoned_ == before + 1; }));
      EXPECT_LT(seconds_between(closed, Clock::now()), 0.05 * 10) << "ten times the goal, for a loaded machine";
      reply->write_event("data: 2\n\n");  // nothing happens
      reply->send({.body = "late"});
      EXPECT_TRUE(eventually([&] { return server_->requests_in_flight() == 0; }));
    }
  }
  EXPECT_EQ(statuses(), std::vector<int>(4, 499));
}

TEST_F(HttpTest, HalfClosedClientsAreAnsweredIfWished) {
  ServerOptions options;
  options.cancel_on_half_close = false;
  start(options);
  RawClient client(port());
  client.send(post("/hold", ""));
  const auto reply = held();
  client.shut_sending_down();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(abandoned_, 0);
  reply->send({.body = "still"});
  EXPECT_TRUE(client.response().ends_with("still"));
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpTest, EventsAreChunksAndTheConnectionGoesOn) {
  start();
  RawClient client(port());
  client.send(post("/hold", "") + post("/echo", "next"));
  const auto reply = held();
  reply->begin_events({});
  reply->write_event("data: one\n\n");
  EXPECT_TRUE(contains(client.receive_until("one"), "content-type: text/event-stream"));
  reply->write_event("data: two\n\n");
  reply->end_events();
  client.receive_until("next");
  EXPECT_TRUE(contains(client.got(), "\r\n\r\nb\r\ndata: one\n\n\r\nb\r\ndata: two\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK"))
      << client.got();
}

TEST_F(HttpTest, OldClientsGetEventsUntilTheConnectionCloses) {
  start();
  RawClient client(port());
  client.send("POST /hold HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  const auto reply = held();
  reply->begin_events({});
  reply->write_event("data: one\n\n");
  reply->end_events();
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.got().ends_with("\r\n\r\ndata: one\n\n")) << client.got();
  EXPECT_FALSE(contains(client.got(), "transfer-encoding"));
}

TEST_F(HttpTest, SilentStreamsSendComments) {
  ServerOptions options;
  options.limits.heartbeat_s = 0.05;
  start(options);
  RawClient client(port());
  client.send(post("/hold", ""));
  const auto reply = held();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(client.got(), "") << "nothing may be sent before the endpoint has decided";
  reply->begin_events({});
  EXPECT_TRUE(contains(client.receive_until("\n\n\r\n"), ": "));
  reply->end_events();
}

TEST_F(HttpTest, AReaderThatNeverReadsIsCutOffByBytesAndByTime) {
  ServerOptions options;
  options.limits.stream_bytes_max = 64 << 10;
  start(options);
  RawClient client(port(), 4096);
  client.send(post("/hold", ""));
  auto reply = held();
  reply->begin_events({});
  for (int i = 0; i < 2000 && abandoned_ == 0; ++i) {
    reply->write_event("data: " + std::string(1000, 'x') + "\n\n");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_TRUE(eventually([&] { return abandoned_ == 1; }));

  held_ = nullptr;
  options.limits.stream_bytes_max = 64 << 20;
  options.limits.write_stall_s = 0.1;
  start(options);
  RawClient other(port(), 4096);
  other.send(post("/hold", ""));
  reply = held();
  reply->begin_events({});
  for (int i = 0; i < 2000; ++i) reply->write_event("data: " + std::string(1000, 'x') + "\n\n");
  EXPECT_TRUE(eventually([&] { return abandoned_ == 2; }));
}

TEST_F(HttpTest, KeysGuardEverythingButOpenRoutes) {
  ServerOptions options;
  options.keys.add("a-long-enough-key");
  options.keys.add("another-long-key");
  start(options);
  RawClient client(port());
  const auto status = [&](std::string_view path, std::string_view fields) {
    client.send(get(path, fields));
    return status_of(client.response());
  };
  EXPECT_EQ(status("/cheap", ""), "HTTP/1.1 401");
  EXPECT_EQ(status("/nothing", ""), "HTTP/1.1 401") << "not even which paths exist";
  EXPECT_EQ(status("/cheap", "Authorization: Bearer wrong\r\n"), "HTTP/1.1 401");
  EXPECT_EQ(status("/cheap", "Authorization: Basic a-long-enough-key\r\n"), "HTTP/1.1 401");
  EXPECT_EQ(status("/cheap", "Authorization: Bearer a-long-enough-ke\r\n"), "HTTP/1.1 401");
  EXPECT_EQ(status("/cheap", "Authorization: Bearer a-long-enough-key\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(status("/cheap", "X-Api-Key: another-long-key\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(status("/open", ""), "HTTP/1.1 200");
}

TEST_F(HttpTest, PagesOfOtherOriginsAndReboundNamesAreRefused) {
  ServerOptions options;
  options.allowed_origins = {"https://ui.example"};
  options.allowed_hosts = {"box.local"};
  start(options);
  RawClient client(port());
  const auto answer = [&](std::string_view host, std::string_view fields) {
    client.send(fmt::format("GET /cheap HTTP/1.1\r\nHost: {}\r\n{}\r\n", host, fields));
    return client.response();
  };
  for (const char* host : {"localhost:1", "127.0.0.1:1", "[::1]:1", "box.local:1"}) {
    EXPECT_EQ(status_of(answer(host, "")), "HTTP/1.1 200") << host;
  }
  EXPECT_EQ(status_of(answer("evil.example", "")), "HTTP/1.1 403");
  EXPECT_EQ(status_of(answer("localhost", "Origin: https://evil.example\r\n")), "HTTP/1.1 403");
  EXPECT_EQ(status_of(answer("localhost:1", "Origin: http://localhost:1\r\n")), "HTTP/1.1 200");
  const std::string allowed = answer("localhost", "Origin: https://ui.example\r\n");
  EXPECT_TRUE(contains(allowed, "access-control-allow-origin: https://ui.example\r\n"));
  client.send(
      "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://ui.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
  EXPECT_TRUE(contains(client.receive_until("\r\n\r\n"), "access-control-allow-headers: authorization\r\n"));
}

TEST_F(HttpTest, ATakenPortIsAStartError) {
  start();
  ServerOptions options;
  options.port = port();
  options.error_body = [](int, std::string_view) { return std::string(); };
  try {
    const Server second(options, {});
    FAIL() << "two servers on one port";
  } catch (const StartError& error) {
    EXPECT_EQ(error.exit_code(), 5);
    EXPECT_TRUE(contains(error.what(), std::to_string(port())));
  }
}

TEST_F(HttpTest, ConnectionsBeyondTheLimitAreTurnedAway) {
  ServerOptions options;
  options.limits.connections_max = 2;
  start(options);
  RawClient one(port()), two(port());
  one.send(get("/cheap"));
  two.send(get("/cheap"));
  EXPECT_EQ(status_of(one.response()), "HTTP/1.1 200");
  EXPECT_EQ(status_of(two.response()), "HTTP/1.1 200");
  RawClient three(port());
  EXPECT_EQ(status_of(three.response()), "HTTP/1.1 503");
  one.close();
  EXPECT_TRUE(eventually([&] {
    RawClient again(port());
    again.send(get("/cheap"));
    return status_of(again.response()) == "HTTP/1.1 200";
  }));
}

TEST_F(HttpTest, StoppingAbandonsWhatIsRunning) {
  start();
  RawClient client(port());
  client.send(post("/hold", ""));
  held();
  server_->stop();
  EXPECT_EQ(abandoned_, 1);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server_->requests_in_flight(), 0);
}

}  // namespace
}  // namespace rose::http
