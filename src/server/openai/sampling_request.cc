#include "server/openai/sampling_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace rose::openai {
namespace {

constexpr std::int64_t kIntMax = std::numeric_limits<int>::max();

void read_stop(Fields& fields, const ApiLimits& limits, SamplingRequest& out) {
  const json::Value* stop = fields.value("stop");
  if (stop == nullptr || !fields.ok()) return;
  const auto add = [&](const json::Value& entry) {
    if (!entry.is_string()) return fields.wrong_type("stop", "a string or an array of strings", entry);
    const std::string text(entry.get_string());
    if (text.empty()) return;  // matches everywhere; clients send it to mean "none"
    if (text.size() > limits.stop_string_bytes_max) {
      return fields.fail("stop",
                         fmt::format("Invalid 'stop': a stop string may have {} bytes.", limits.stop_string_bytes_max),
                         "string_above_max_length");
    }
    out.stop.push_back(text);
  };
  if (!stop->is_array()) return add(*stop);
  if (stop->get_array().size() > limits.stop_strings_max) {
    return fields.fail(
        "stop", fmt::format("Invalid 'stop': array too long. Expected at most {} items.", limits.stop_strings_max),
        "array_above_max_length");
  }
  for (const json::Value& entry : stop->get_array()) add(entry);
}

void read_stop_tokens(Fields& fields, const ApiLimits& limits, SamplingRequest& out) {
  const json::Array* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  if (ids->size() > 64) return fields.fail("stop_token_ids", "Invalid 'stop_token_ids': at most 64 ids.");
  for (const json::Value& id : *ids) {
    const std::int64_t* number = id.if_int64();
    if (number == nullptr || *number < 0 || *number >= limits.vocabulary) {
      return fields.fail("stop_token_ids", fmt::format("Invalid 'stop_token_ids': {} is not a token id below {}.",
                                                       json::serialize(id), limits.vocabulary));
    }
    out.decoding.stop_tokens.push_back(static_cast<std::int32_t>(*number));
  }
}

void read_logit_bias(Fields& fields, const ApiLimits& limits, SamplingRequest& out) {
  const json::Object* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > limits.logit_bias_max) {
    return fields.fail("logit_bias", fmt::format("Invalid 'logit_bias': at most {} entries.", limits.logit_bias_max));
  }
  for (const auto& entry : *bias) {
    const std::string_view key = entry.key();
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= limits.vocabulary) {
      return fields.fail("logit_bias", fmt::format("Invalid key in 'logit_bias': \"{}\" is not a token id below {}.",
                                                   key.substr(0, 40), limits.vocabulary));
    }
    const double value = entry.value().is_number() ? entry.value().to_number<double>() : 1e9;
    if (!(value >= -100 && value <= 100)) {
      return fields.fail("logit_bias", "Invalid value in 'logit_bias': expected a number from -100 to 100.");
    }
    out.decoding.logit_bias.emplace_back(id, static_cast<float>(value));
  }
}

void read_streaming(Fields& fields, SamplingRequest& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const json::Object* options = fields.object("stream_options");
  if (options == nullptr) return;
  Fields inner = fields.at(*options, "stream_options");
  out.include_usage = inner.boolean("include_usage").value_or(false);
  out.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
}

// Any 64-bit integer, of either sign, is a seed.
void read_seed(Fields& fields, SamplingRequest& out) {
  const json::Value* seed = fields.value("seed");
  if (seed == nullptr || !fields.ok()) return;
  if (seed->is_int64()) {
    out.decoding.seed = static_cast<std::uint64_t>(seed->get_int64());
  } else if (seed->is_uint64()) {
    out.decoding.seed = seed->get_uint64();
  } else {
    fields.wrong_type("seed", "an integer", *seed);
  }
}

void read_salt(Fields& fields, SamplingRequest& out) {
  const auto salt = fields.text("cache_salt");
  if (!salt) return;
  const bool plain = !salt->empty() && salt->size() <= 128 &&
                     std::all_of(salt->begin(), salt->end(),
                                 [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  if (!plain) return fields.fail("cache_salt", "Invalid 'cache_salt': expected 1 to 128 of A-Z, a-z, 0-9, '_', '-'.");
  out.cache_salt = std::string(*salt);
}

}  // namespace

void read_sampling(Fields& fields, const ApiLimits& limits, SamplingRequest& out) {
  DecodingOptions& decoding = out.decoding;
  out.model = std::string(fields.required_text("model").value_or(""));
  decoding.temperature = static_cast<float>(fields.number("temperature", {0, 2}).value_or(1));
  // top_p 0 keeps the most likely token alone, which is what temperature 0 means.
  const double top_p = fields.number("top_p", {0, 1}).value_or(1);
  if (top_p == 0) decoding.temperature = 0;
  decoding.top_p = top_p == 0 ? 1.0f : static_cast<float>(top_p);
  decoding.min_p = static_cast<float>(fields.number("min_p", {0, 1}).value_or(0));
  // -1 is vLLM's "all".
  decoding.top_k = static_cast<int>(std::max<std::int64_t>(0, fields.integer("top_k", -1, kIntMax).value_or(0)));
  decoding.presence_penalty = static_cast<float>(fields.number("presence_penalty", {-2, 2}).value_or(0));
  decoding.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", {-2, 2}).value_or(0));
  decoding.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", {0.01, 100}).value_or(1));
  read_seed(fields, out);
  const auto max_tokens = fields.integer("max_tokens", 1, kIntMax);
  const auto max_completion_tokens = fields.integer("max_completion_tokens", 1, kIntMax);
  decoding.max_tokens = static_cast<int>(max_completion_tokens.value_or(max_tokens.value_or(0)));
  decoding.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, kIntMax).value_or(0));
  decoding.ignore_stop = fields.boolean("ignore_eos").value_or(false);
  out.n = static_cast<int>(fields.integer("n", 1, limits.n_max).value_or(1));
  out.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  out.priority = static_cast<int>(fields.integer("priority", -1'000'000, 1'000'000).value_or(0));
  read_stop(fields, limits, out);
  read_stop_tokens(fields, limits, out);
  read_logit_bias(fields, limits, out);
  read_streaming(fields, out);
  read_salt(fields, out);
}

}  // namespace rose::openai
