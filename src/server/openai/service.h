// What the endpoints share: the model once it has loaded, ids, options, counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chat/chat_format.h"
#include "engine/router.h"
#include "server/metrics.h"
#include "server/openai/chat_request.h"
#include "server/openai/chat_writer.h"
#include "tokenizer/tokenizer.h"

namespace rose::openai {

struct ServedModel {
  std::shared_ptr<TokenEngine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatFormat> chat_format;
};

struct ServiceOptions {
  std::vector<std::string> model_names;  // at least one; the first is what answers call it
  std::string version;
  ReasoningField reasoning_field = ReasoningField::kReasoning;
  double request_timeout_s = 600;  // 0: none
  ApiLimits limits;                // vocabulary: set when the model is there
};

class Service {
 public:
  explicit Service(ServiceOptions options);

  const ServiceOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  std::int64_t created() const { return created_; }

  // Null while the model loads.
  std::shared_ptr<const ServedModel> model() const;
  void set_model(std::shared_ptr<const ServedModel> model);

  bool serves(std::string_view name) const;
  RequestError unknown_model(std::string_view name) const;
  RequestId next_id() { return ids_.fetch_add(1); }
  // prefix + 128 bits that differ between requests and between starts, in hex.
  std::string unique(std::string_view prefix, RequestId id) const;

 private:
  ServiceOptions options_;
  Metrics metrics_;
  std::int64_t created_;
  std::uint64_t secret_;
  std::atomic<RequestId> ids_{1};
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;  // guarded by mutex_
};

std::int64_t unix_now();
std::string today_utc();  // YYYY-MM-DD

}  // namespace rose::openai
