#include "serve.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "default_model.h"
#include "load.h"
#include "log_format.h"
#include "server/api_server.h"

namespace rose {
namespace {

struct ServeOptions {
  LoadOptions load;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> model_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool insecure_no_auth = false;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  std::string reasoning_field = "reasoning";
  double request_timeout_s = 600;
  double drain_timeout_s = 30;
  double body_mib_max = 8;
  int connections_max = 4096;
  int http_threads = 2;
  bool keep_on_half_close = false;
  bool no_access_log = false;
  std::string log_format = "text";
};

std::string model_name_of(const std::string& checkpoint) {
  const std::string path = checkpoint.empty() ? default_model_path() : checkpoint;
  const auto normal = std::filesystem::path(path).lexically_normal();
  const std::string name = normal.filename().string();
  return name.empty() ? normal.parent_path().filename().string() : name;
}

http::ApiKeys api_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    std::ifstream file(options.api_key_file);
    if (!file) throw StartError(fmt::format("cannot read the key file {}", options.api_key_file), 2);
    for (std::string line; std::getline(file, line);) {
      while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
      if (!line.empty() && line.front() != '#') keys.push_back(line);
    }
    if (keys.empty()) throw StartError(fmt::format("the key file {} has no key", options.api_key_file), 2);
  }
  http::ApiKeys out;
  for (const std::string& key : keys) {
    if (key.empty()) throw StartError("an API key must not be empty", 2);
    if (key.size() < 16) spdlog::warn("an API key of {} characters can be guessed; use 16 or more", key.size());
    out.add(key);
  }
  return out;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

ApiServerOptions server_options(const ServeOptions& options) {
  ApiServerOptions out;
  out.http.host = options.host;
  out.http.port = options.port;
  out.http.io_threads = options.http_threads;
  out.http.endpoint_threads = options.http_threads;
  out.http.keys = api_keys(options);
  if (!is_loopback(options.host) && !out.http.keys.required() && !options.insecure_no_auth) {
    throw StartError(
        fmt::format("--host {} is reachable by others, so it needs --api-key or --api-key-file, or --insecure-no-auth",
                    options.host),
        2);
  }
  out.http.allowed_origins = options.allowed_origins;
  out.http.allowed_hosts = options.allowed_hosts;
  out.http.cancel_on_half_close = !options.keep_on_half_close;
  out.http.limits.body.bytes_max = static_cast<std::uint64_t>(options.body_mib_max * (1 << 20));
  out.http.limits.connections_max = options.connections_max;
  out.service.model_names = options.model_names;
  if (out.service.model_names.empty()) out.service.model_names = {model_name_of(options.load.checkpoint)};
  out.service.version = ROSE_VERSION;
  out.service.request_timeout_s = options.request_timeout_s;
  if (options.reasoning_field == "reasoning_content") {
    out.service.reasoning_field = openai::ReasoningField::kReasoningContent;
  } else if (options.reasoning_field == "both") {
    out.service.reasoning_field = openai::ReasoningField::kBoth;
  }
  out.access_log = !options.no_access_log;
  return out;
}

// " (python3, pid 123)": who listens on a port, as far as /proc lets us see; "" otherwise.
std::string holder_of(int port) {
  namespace fs = std::filesystem;
  std::vector<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // titles
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, skip, inode;
      words >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
      const std::size_t colon = local.find(':');
      if (state == "0A" && colon != std::string::npos && std::stoi(local.substr(colon + 1), nullptr, 16) == port) {
        sockets.push_back("socket:[" + inode + "]");
      }
    }
  }
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename().string();
    if (pid.empty() || std::isdigit(static_cast<unsigned char>(pid[0])) == 0) continue;
    for (fs::directory_iterator it(process.path() / "fd", error), end; !error && it != end; it.increment(error)) {
      std::error_code unreadable;
      const std::string target = fs::read_symlink(it->path(), unreadable).string();
      if (std::find(sockets.begin(), sockets.end(), target) == sockets.end()) continue;
      std::string name;
      std::getline(std::ifstream(process.path() / "comm"), name);
      return fmt::format(" ({}, pid {})", name, pid);
    }
  }
  return "";
}

// The port is taken before gigabytes are read.
std::unique_ptr<ApiServer> listen(const ApiServerOptions& options) {
  try {
    return std::make_unique<ApiServer>(options);
  } catch (const StartError& error) {
    throw StartError(error.what() + holder_of(options.http.port) + "; choose with --host and --port",
                     error.exit_code());
  }
}

std::string url_of(const ServeOptions& options, int port) {
  std::string host = options.host;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}", host, port);
}

// The model, loaded on a thread of its own while the server answers.
class Loading {
 public:
  Loading(const LoadOptions& options, ApiServer& server)
      : done_(eventfd(0, EFD_CLOEXEC)), thread_([this, options, &server] { run(options, server); }) {}
  ~Loading() {
    if (thread_.joinable()) thread_.join();
    close(done_);
  }

  int done_descriptor() const { return done_; }
  // The summary for the terminal; throws what loading threw. After done_descriptor() has become readable.
  std::string result() {
    thread_.join();
    if (error_) std::rethrow_exception(error_);
    return summary_;
  }

 private:
  void run(const LoadOptions& options, ApiServer& server) {
    try {
      const Progress bar = terminal_progress("loading");
      LoadedModel model = load(options, [&](std::uint64_t done, std::uint64_t total) {
        server.loading(total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total));
        bar(done, total);
      });
      summary_ = model.summary;
      server.attach({.engine = std::move(model.engine),
                     .tokenizer = std::move(model.tokenizer),
                     .chat_format = std::move(model.chat_format)});
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::uint64_t one = 1;
    if (write(done_, &one, sizeof one) < 0) std::terminate();
  }

  int done_;
  std::string summary_;
  std::exception_ptr error_;
  std::thread thread_;
};

// Signals as a descriptor to poll. Made before any other thread, so that all of them leave the signals alone.
class Signals {
 public:
  Signals() {
    std::signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    descriptor_ = signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() { close(descriptor_); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Waits for a signal (true), for `other` to become readable, or for the time.
  bool wait(int other, int timeout_ms) {
    pollfd polled[2] = {{.fd = descriptor_, .events = POLLIN, .revents = 0},
                        {.fd = other, .events = POLLIN, .revents = 0}};
    poll(polled, other >= 0 ? 2 : 1, timeout_ms);
    signalfd_siginfo which{};
    return read(descriptor_, &which, sizeof which) == static_cast<ssize_t>(sizeof which);
  }

 private:
  sigset_t set_{};
  int descriptor_ = -1;
};

// What an operator reads at start: as it is, or as a record of a log that a machine reads.
void announce(const ServeOptions& options, std::string_view text) {
  if (options.log_format == "json") {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    if (!text.empty()) spdlog::info("{}", text);
  } else {
    fmt::print(stderr, "{}", text);
  }
}

void announce_ready(const ServeOptions& options, const ApiServerOptions& server, const std::string& url,
                    double seconds) {
  const std::string key = server.http.keys.required() ? " -H 'authorization: Bearer YOUR_KEY'" : "";
  announce(options,
           fmt::format("ready after {:.1f} s: {}/v1, metrics at {}/metrics. Try:\n\n"
                       "  curl {}/v1/chat/completions -H 'content-type: application/json'{} -d '{{\"model\": \"{}\", "
                       "\"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'\n\n",
                       seconds, url, url, url, key, server.service.model_names.front()));
  if (options.insecure_no_auth && !is_loopback(options.host)) {
    spdlog::warn("anybody who reaches {} can use this server: it has no API key", options.host);
  }
}

// After the first signal: no new requests; running ones get their time; a second signal ends everything now.
void drain(Signals& signals, ApiServer& server, double timeout_s) {
  server.begin_drain();
  const Time until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  if (const int running = server.requests_in_flight(); running > 0) {
    spdlog::info("draining: {} requests have {:.0f} s to finish; a second signal ends them now", running, timeout_s);
  }
  while (server.requests_in_flight() > 0 && Clock::now() < until) {
    if (signals.wait(-1, 20)) {
      spdlog::warn("second signal: leaving {} requests unfinished", server.requests_in_flight());
      spdlog::shutdown();
      _exit(1);
    }
  }
}

int run_serve(const ServeOptions& options) {
  spdlog::set_level(spdlog::level::info);
  const Time begin = Clock::now();
  Signals signals;
  const ApiServerOptions server_opts = server_options(options);
  const std::unique_ptr<ApiServer> listening = listen(server_opts);
  ApiServer& server = *listening;
  server.start();
  const std::string url = url_of(options, server.port());
  announce(options, fmt::format("rose {}: listening on {}, loading the model\n", ROSE_VERSION, url));

  Loading loading(options.load, server);
  if (signals.wait(loading.done_descriptor(), -1)) {
    // Nothing has been answered yet and loading cannot be interrupted, so there is nothing to wait for.
    spdlog::info("stopped while loading");
    spdlog::shutdown();
    _exit(0);
  }
  const std::string summary = loading.result();
  announce(options, summary.empty() || summary.back() == '\n' ? summary : summary + "\n");
  announce_ready(options, server_opts, url, seconds_between(begin, Clock::now()));

  while (!signals.wait(-1, -1)) {
  }
  drain(signals, server, options.drain_timeout_s);
  server.stop();
  spdlog::info("drained");
  return 0;
}

void add_serve_options(CLI::App& command, ServeOptions& options) {
  const auto list = [&](const char* name, std::vector<std::string>& value, const char* help) {
    command.add_option(name, value, help)->delimiter(',')->allow_extra_args(false);
  };
  command.add_option("--host", options.host, "address to listen on")->capture_default_str();
  command.add_option("--port", options.port, "port to listen on; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  list("--served-model-name,--model-name", options.model_names,
       "what requests call the model, several if you like; default: the checkpoint's name");
  list("--api-key", options.api_keys, "a key that requests must send; repeat for several");
  command.add_option("--api-key-file", options.api_key_file, "file with one key a line");
  command.add_flag("--insecure-no-auth", options.insecure_no_auth, "allow a --host that others reach without a key");
  list("--allowed-origins", options.allowed_origins, "origins of web pages that may call the server; *: all");
  list("--allowed-hosts", options.allowed_hosts,
       "names by which the server is called besides addresses and localhost; *: all");
  command
      .add_option("--reasoning-field", options.reasoning_field,
                  "where answers carry the analysis: reasoning, reasoning_content or both")
      ->check(CLI::IsMember({"reasoning", "reasoning_content", "both"}))
      ->capture_default_str();
  command.add_option("--request-timeout", options.request_timeout_s, "seconds for a whole answer; 0: no limit")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command
      .add_option("--shutdown-timeout,--drain-timeout", options.drain_timeout_s,
                  "seconds that running requests get after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command.add_option("--body-limit", options.body_mib_max, "MiB of a request's body")
      ->check(CLI::Range(0.001, 256.0))
      ->capture_default_str();
  command.add_option("--max-connections", options.connections_max, "connections at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--http-threads", options.http_threads, "threads for connections, and as many for requests")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_flag("--keep-on-half-close", options.keep_on_half_close,
                   "go on answering a client that has shut its sending side down");
  command.add_flag("--disable-access-log", options.no_access_log, "no log line for each request");
  command
      .add_option("--log-format", options.log_format, "the log on standard error: text, or json for a record a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void register_serve(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("serve", "an OpenAI-compatible server: chat completions, completions, metrics");
  auto options = std::make_shared<ServeOptions>();
  add_load_options(*command, options->load);
  add_serve_options(*command, *options);
  command->footer(
      "response_format json_object and json_schema are put into the prompt; the answer is not yet held to them by a "
      "grammar.\nOn a GPU, a step that does not end within --watchdog-timeout ends the server with exit code 6, so "
      "that a service manager starts it\nagain; /health/live fails after two minutes without a step.\n"
      "Limits, timeouts and error texts follow OpenAI's API where it has them.");
  command->callback([options] {
    const bool json = options->log_format == "json";
    if (json) {
      log_as_json();
    } else {
      log_as_text();
    }
    try {
      if (const int code = run_serve(*options); code != 0) throw CLI::RuntimeError(code);
    } catch (const StartError& error) {
      if (!json) throw;  // main prints it
      spdlog::critical("{}", error.what());
      throw CLI::RuntimeError(error.exit_code());
    }
  });
}

}  // namespace rose
