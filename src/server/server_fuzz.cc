// Any bytes as a request head, as a chunked body, as a chat or completion request. Oracles: an accepted head says the
// same when it is written out again; a body decodes alike however it is split; an accepted request is within its
// limits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http_body.h"
#include "server/http_head.h"
#include "server/openai/chat_request.h"
#include "server/openai/completions.h"

namespace {

using namespace rose;

void fuzz_head(std::string_view bytes) {
  const auto end = http::head_end(bytes);
  if (!end) return;
  const auto first = http::parse_head(bytes.substr(0, *end));
  if (!first.ok()) {
    CHECK(first.error().status >= 400 && first.error().status < 600);
    return;
  }
  CHECK(!(first->chunked && first->content_length > 0), "two framings at once");
  std::string again = first->method + " " + first->path + (first->query.empty() ? "" : "?" + first->query) +
                      " HTTP/1." + std::to_string(first->minor_version) + "\r\n";
  for (const auto& [name, value] : first->fields) again += name + ": " + value + "\r\n";
  const auto second = http::parse_head(again + "\r\n", {.head_bytes_max = 64 << 10});
  CHECK(second.ok(), "{}", second.error().message);
  CHECK(second->path == first->path && second->fields == first->fields && second->chunked == first->chunked &&
        second->content_length == first->content_length && second->keep_alive == first->keep_alive);
}

struct Outcome {
  std::string body;
  std::size_t used = 0;
  bool done = false;
  int status = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome decode(std::string_view bytes, std::size_t piece) {
  const http::BodyLimits limits{.bytes_max = 1000, .overhead_bytes_free = 200};
  http::BodyDecoder decoder = http::BodyDecoder::chunked(limits);
  Outcome out;
  while (out.used < bytes.size() && !decoder.done() && !decoder.error()) {
    out.used += decoder.feed(bytes.substr(out.used, piece), out.body);
  }
  out.done = decoder.done();
  out.status = decoder.error() ? decoder.error()->status : 0;
  CHECK(out.body.size() <= limits.bytes_max);
  return out;
}

void check_sampling(const openai::SamplingRequest& request, const openai::ApiLimits& limits) {
  const DecodingOptions& d = request.decoding;
  CHECK(d.temperature >= 0 && d.temperature <= 2 && d.top_p > 0 && d.top_p <= 1 && d.min_p >= 0 && d.min_p <= 1);
  CHECK(std::abs(d.presence_penalty) <= 2 && std::abs(d.frequency_penalty) <= 2 && d.repetition_penalty > 0);
  CHECK(d.top_k >= 0 && d.max_tokens >= 0 && d.min_tokens >= 0 && d.top_logprobs >= -1 && d.top_logprobs <= 20);
  CHECK(request.n >= 1 && request.n <= limits.n_max && request.stop.size() <= limits.stop_strings_max);
  for (const std::string& stop : request.stop) CHECK(!stop.empty() && stop.size() <= limits.stop_string_bytes_max);
  for (const auto& [id, bias] : d.logit_bias) CHECK(id >= 0 && id < limits.vocabulary && std::abs(bias) <= 100);
  for (const std::int32_t id : d.stop_tokens) CHECK(id >= 0 && id < limits.vocabulary);
}

void fuzz_request(std::string_view bytes) {
  const auto body = json::parse(bytes);
  if (!body.ok()) return;
  const openai::ApiLimits limits{.vocabulary = 1000};
  const auto chat = openai::parse_chat_request(*body, limits);
  if (chat.ok()) {
    check_sampling(chat->sampling, limits);
    CHECK(!chat->conversation.messages.empty() && chat->conversation.tools.size() <= limits.tools_max);
  } else {
    CHECK(chat.error().status == 400 && !chat.error().message.empty());
  }
  const auto completion = openai::parse_completion_request(*body, limits);
  if (completion.ok()) check_sampling(completion->sampling, limits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz_head(bytes);
  const Outcome whole = decode(bytes, bytes.size() + 1);
  CHECK(decode(bytes, 1) == whole, "a body decodes differently byte by byte");
  CHECK(decode(bytes, 7) == whole);
  fuzz_request(bytes);
  return 0;
}
