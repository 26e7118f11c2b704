#include "server/openai/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/random.h"
#include "tokenizer/utf8.h"

namespace rose::openai {
namespace {

std::uint64_t random_secret() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      metrics_(options_.model_names.at(0), options_.version),
      created_(unix_now()),
      secret_(random_secret()) {}

std::shared_ptr<const ServedModel> Service::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

void Service::set_model(std::shared_ptr<const ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

bool Service::serves(std::string_view name) const {
  return std::find(options_.model_names.begin(), options_.model_names.end(), name) != options_.model_names.end();
}

RequestError Service::unknown_model(std::string_view name) const {
  return {404,
          fmt::format("The model `{}` does not exist. Served here: {}.", valid_utf8(name.substr(0, 128)),
                      fmt::join(options_.model_names, ", ")),
          "model", "model_not_found"};
}

std::string Service::unique(std::string_view prefix, RequestId id) const {
  return fmt::format("{}{:016x}{:016x}", prefix, random_bits(secret_, id), mix64(secret_ ^ mix64(id)));
}

std::int64_t unix_now() { return static_cast<std::int64_t>(std::time(nullptr)); }

std::string today_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return std::string(text, size);
}

}  // namespace rose::openai
