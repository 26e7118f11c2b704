#include "models/gpt_oss/config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/experts/experts.h"
#include "weights/format.h"

namespace rose {
namespace {

using Names = std::initializer_list<std::string_view>;

// One JSON object whose fields are read by name. A null counts as absent, as it does for the readers of the public
// files.
class Fields {
 public:
  Fields(const json::Object& object, std::string path) : object_(object), path_(std::move(path)) {}

  const json::Value* find(std::string_view name) const {
    const json::Value* value = object_.if_contains({name.data(), name.size()});
    return value != nullptr && !value->is_null() ? value : nullptr;
  }

  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const {
    const json::Value* value = find(name);
    std::string found = value == nullptr ? "missing" : json::serialize(*value);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    throw StartError(fmt::format("config.json: {}{} is {}; expected {}", path_, name, found, expected));
  }

  // The first of `names` that is present; all that are present must agree, since readers differ in which one they take.
  std::optional<double> number(Names names) const {
    std::optional<double> result;
    for (const std::string_view name : names) {
      const json::Value* value = find(name);
      if (value == nullptr) continue;
      if (!value->is_number()) refuse(name, "a number");
      const double found = value->to_number<double>();
      if (result && *result != found) refuse(name, fmt::format("{} as in {}", *result, *names.begin()));
      result = found;
    }
    return result;
  }

  int whole(Names names, int least, int most, std::optional<int> absent = {}) const {
    const std::optional<double> found = number(names);
    if (!found && absent) return *absent;
    if (!found || *found != std::floor(*found) || *found < least || *found > most) {
      refuse(present(names), fmt::format("a whole number from {} to {}", least, most));
    }
    return static_cast<int>(*found);
  }

  double real(Names names, double least, double most, std::optional<double> absent = {}) const {
    const std::optional<double> found = number(names);
    if (!found && absent) return *absent;
    if (!found || !(*found >= least && *found <= most)) {  // NaN and infinity fail too
      refuse(present(names), fmt::format("a number from {} to {}", least, most));
    }
    return *found;
  }

  bool flag(std::string_view name, bool absent) const {
    const json::Value* value = find(name);
    if (value == nullptr) return absent;
    if (!value->is_bool()) refuse(name, "true or false");
    return value->as_bool();
  }

  void must_be(std::string_view name, std::string_view only) const {
    const json::Value* value = find(name);
    if (value != nullptr && !(value->is_string() && std::string_view(value->as_string()) == only)) {
      refuse(name, fmt::format("\"{}\", the only one that gpt_oss defines", only));
    }
  }

 private:
  std::string_view present(Names names) const {
    for (const std::string_view name : names) {
      if (find(name) != nullptr) return name;
    }
    return *names.begin();
  }

  const json::Object& object_;
  std::string path_;  // "rope_scaling." for a nested object
};

const json::Object& config_object(const json::Value& config) {
  if (!config.is_object()) throw StartError("config.json: expected a JSON object");
  return config.as_object();
}

// Things that a gpt-oss forward pass has no second form of.
void refuse_other_architectures(const Fields& fields, const GptOssConfig& config) {
  fields.must_be("hidden_act", "silu");  // names the published files' activation; model.md 4, step 6 defines it
  if (fields.real({"attention_dropout"}, 0, 1, 0) != 0) fields.refuse("attention_dropout", "0");
  if (fields.flag("tie_word_embeddings", false)) {
    fields.refuse("tie_word_embeddings", "false: the unembedding is a matrix of its own");
  }
  const double alpha = fields.real({"swiglu_alpha"}, 0, 1e6, ops::kSwigluAlpha);
  if (static_cast<float>(alpha) != ops::kSwigluAlpha) fields.refuse("swiglu_alpha", "1.702");
  if (const json::Value* quantization = fields.find("quantization_config")) {
    if (!quantization->is_object()) fields.refuse("quantization_config", "an object");
    Fields(quantization->as_object(), "quantization_config.").must_be("quant_method", "mxfp4");
  }
  fields.whole({"pad_token_id"}, 0, config.vocabulary - 1, 0);
  const json::Value* eos = fields.find("eos_token_id");
  if (eos != nullptr && eos->is_number()) fields.whole({"eos_token_id"}, 0, config.vocabulary - 1);
}

std::vector<int> read_windows(const Fields& fields, int layers) {
  const int window = fields.whole({"sliding_window"}, 1, 1 << 24);
  std::vector<int> windows;
  const json::Value* types = fields.find("layer_types");
  if (types == nullptr) {  // even layers slide
    for (int layer = 0; layer < layers; ++layer) windows.push_back(layer % 2 == 0 ? window : 0);
    return windows;
  }
  const std::string expected = fmt::format("{} times \"sliding_attention\" or \"full_attention\"", layers);
  if (!types->is_array() || types->as_array().size() != static_cast<std::size_t>(layers)) {
    fields.refuse("layer_types", expected);
  }
  for (const json::Value& type : types->as_array()) {
    const std::string_view name = type.is_string() ? std::string_view(type.as_string()) : std::string_view();
    if (name != "sliding_attention" && name != "full_attention") fields.refuse("layer_types", expected);
    windows.push_back(name == "sliding_attention" ? window : 0);
  }
  return windows;
}

// The yarn object of the published files. Without `truncate` the bounds are rounded: that is what the key's definition
// says.
void read_yarn(const Fields& fields, const Fields& yarn, ops::RopeConfig& rope) {
  rope.factor = yarn.real({"factor"}, 1, 1e6);
  rope.beta_fast = yarn.real({"beta_fast"}, 1e-6, 1e6, 32);
  rope.beta_slow = yarn.real({"beta_slow"}, 1e-6, 1e6, 1);
  // Never max_position_embeddings, which is the length after scaling (model.md 6, "YaRN original length").
  const int initial = fields.whole({"initial_context_length"}, 1, 1 << 24, 0);
  rope.original_positions = yarn.whole({"original_max_position_embeddings"}, 1, 1 << 24,
                                       initial > 0 ? std::optional<int>(initial) : std::nullopt);
  rope.truncate = yarn.flag("truncate", true);
  const double concentration = 0.1 * std::log(rope.factor) + 1;
  const double given = yarn.real({"attention_factor"}, 0, 1e6, concentration);
  if (std::abs(given - concentration) > 1e-6 * concentration) {
    yarn.refuse("attention_factor", fmt::format("{} = 0.1 ln(factor) + 1", concentration));
  }
  for (const std::string_view name : {"mscale", "mscale_all_dim"}) {
    if (yarn.find(name) != nullptr) yarn.refuse(name, "no such key");
  }
}

ops::RopeConfig read_rope(const Fields& fields, int head_dim) {
  ops::RopeConfig rope;
  rope.head_dim = head_dim;
  const bool old_spelling = fields.find("rope_scaling") != nullptr;
  const std::string_view name = old_spelling ? "rope_scaling" : "rope_parameters";
  const json::Value* given = fields.find(name);
  if (given != nullptr && !given->is_object()) fields.refuse(name, "an object");
  static const json::Object kNothing;
  const Fields inner(given == nullptr ? kNothing : given->as_object(), std::string(name) + ".");

  rope.theta = inner.real({"rope_theta"}, 1.001, 1e12, fields.real({"rope_theta"}, 1.001, 1e12, 150000));
  if (inner.real({"partial_rotary_factor"}, 0, 1, 1) != 1) inner.refuse("partial_rotary_factor", "1");
  if (given != nullptr) {  // absent: the published values, which are RopeConfig's defaults
    const std::string_view key =
        inner.find("rope_type") == nullptr && inner.find("type") != nullptr ? "type" : "rope_type";
    const json::Value* type = inner.find(key);
    const std::string_view kind = type == nullptr     ? "default"
                                  : type->is_string() ? std::string_view(type->as_string())
                                                      : std::string_view();
    if (kind == "yarn") {
      read_yarn(fields, inner, rope);
    } else if (kind == "default") {
      rope.factor = 1;
    } else {
      inner.refuse(key, "\"yarn\" or \"default\"");
    }
  }
  if (rope.beta_fast <= rope.beta_slow) {
    throw StartError(fmt::format("config.json: YaRN's beta_fast {} must be larger than its beta_slow {}",
                                 rope.beta_fast, rope.beta_slow));
  }
  return rope;
}

void require_multiple(std::string_view name, int value, std::int64_t unit, std::string_view reason) {
  if (value % unit != 0) {
    throw StartError(fmt::format("config.json: {} is {}; expected a multiple of {} ({})", name, value, unit, reason));
  }
}

}  // namespace

float GptOssConfig::attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

bool is_gpt_oss_config(const json::Value& config) {
  const json::Value* type = config.is_object() ? config.as_object().if_contains("model_type") : nullptr;
  return type != nullptr && type->is_string() && std::string_view(type->as_string()) == "gpt_oss";
}

GptOssConfig read_gpt_oss_config(const json::Value& value) {
  const Fields fields(config_object(value), "");
  GptOssConfig config;
  config.layers = fields.whole({"num_hidden_layers"}, 1, 1024);
  config.hidden = fields.whole({"hidden_size"}, 32, 1 << 17);
  config.intermediate = fields.whole({"intermediate_size"}, 32, 1 << 17);
  config.heads = fields.whole({"num_attention_heads"}, 1, 1024);
  config.kv_heads = fields.whole({"num_key_value_heads"}, 1, 1024);
  config.head_dim = fields.whole({"head_dim"}, 8, 256);
  config.experts = fields.whole({"num_local_experts"}, 1, 4096);
  config.experts_per_token = fields.whole({"num_experts_per_tok", "experts_per_token"}, 1, 64);
  config.vocabulary = fields.whole({"vocab_size"}, 1, 1 << 22);
  config.attention_bias = fields.flag("attention_bias", true);
  config.epsilon = static_cast<float>(fields.real({"rms_norm_eps"}, 1e-12, 1, 1e-5));
  config.swiglu_limit = static_cast<float>(fields.real({"swiglu_limit"}, 1e-3, 1e6, 7));
  config.windows = read_windows(fields, config.layers);
  config.rope = read_rope(fields, config.head_dim);
  config.positions_max = fields.whole({"max_position_embeddings"}, 1, 1 << 24);

  require_multiple("hidden_size", config.hidden, kMxfp4Group, "weights of one MXFP4 group");
  require_multiple("intermediate_size", config.intermediate, kMxfp4Group, "weights of one MXFP4 group");
  require_multiple("num_attention_heads", config.heads, config.kv_heads, "num_key_value_heads");
  require_multiple("head_dim", config.head_dim, 8, "RoPE pairs in whole vectors");
  if (config.experts_per_token > config.experts) {
    throw StartError(fmt::format("config.json: num_experts_per_tok is {}; expected at most num_local_experts, {}",
                                 config.experts_per_token, config.experts));
  }
  refuse_other_architectures(fields, config);
  return config;
}

}  // namespace rose
