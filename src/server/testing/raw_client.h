// A TCP client that sends the bytes it is told to and shows the bytes it got: for requests no HTTP library would make.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/check.h"

namespace rose::testing {

class RawClient {
 public:
  explicit RawClient(int port, int receive_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    CHECK(socket_ >= 0);
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "errno {}", errno);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void shut_sending_down() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void reset() {  // RST instead of FIN
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  // What has come until `text` is in it, the server closes, or the time is up.
  std::string& receive_until(std::string_view text, double timeout_s = 5) {
    receive(timeout_s, [&] { return got_.find(text) != std::string::npos; });
    return got_;
  }
  // One whole response with a Content-Length, taken out of what has come; "" if the server closed first.
  std::string response(double timeout_s = 5) {
    std::size_t size = 0;
    receive(timeout_s, [&] {
      const std::size_t head = got_.find("\r\n\r\n");
      if (head == std::string::npos) return false;
      const std::size_t length = got_.find("content-length: ");
      size = head + 4 + (length < head ? std::stoul(got_.substr(length + 16)) : 0);
      return got_.size() >= size;
    });
    if (size == 0 || got_.size() < size) return "";
    std::string out = got_.substr(0, size);
    got_.erase(0, size);
    return out;
  }
  // True if the server closes within the time.
  bool closed(double timeout_s = 5) {
    receive(timeout_s, [] { return false; });
    return ended_;
  }
  const std::string& got() const { return got_; }

 private:
  template <class Enough>
  void receive(double timeout_s, Enough enough) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    while (!enough() && !ended_) {
      const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
      pollfd poller{.fd = socket_, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&poller, 1, static_cast<int>(left * 1000) + 1) <= 0) return;
      char space[65536];
      const ssize_t bytes = ::recv(socket_, space, sizeof space, 0);
      if (bytes <= 0) {
        ended_ = true;
      } else {
        got_.append(space, static_cast<std::size_t>(bytes));
      }
    }
  }

  int socket_;
  std::string got_;
  bool ended_ = false;
};

// "POST /path HTTP/1.1" with a body and its length.
inline std::string post(std::string_view path, std::string_view body, std::string_view more_fields = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path,
      more_fields, body.size(), body);
}
inline std::string get(std::string_view path, std::string_view more_fields = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more_fields);
}

}  // namespace rose::testing
