#include <fmt/format.h>

#include <string>

#include "models/gpt_oss/config.h"
#include "models/gpt_oss/gpt_oss.h"
#include "models/gpt_oss/weights.h"
#include "models/model.h"

namespace rose {
namespace {

struct Entry {
  std::string_view type;  // config.json's model_type
  bool (*matches)(const json::Value& config);
  ModelShape (*shape)(const json::Value& config);
  void (*visit_specs)(const json::Value& config, const SpecVisitor& visit);
  std::unique_ptr<Model> (*load)(WeightSource&, const ModelOptions&, const Stream&, const Progress&);
};

// The list of models: a new one is a folder beside gpt_oss/ and a line here.
constexpr Entry kModels[] = {
    {.type = "gpt_oss",
     .matches = is_gpt_oss_config,
     .shape = [](const json::Value& config) { return gpt_oss_shape(read_gpt_oss_config(config)); },
     .visit_specs =
         [](const json::Value& config, const SpecVisitor& visit) {
           GptOssWeights unused;
           visit_weights(read_gpt_oss_config(config), unused, [&](const WeightSpec& spec, Weight&) { visit(spec); });
         },
     .load = [](WeightSource& source, const ModelOptions& options, const Stream& stream, const Progress& progress)
         -> std::unique_ptr<Model> { return std::make_unique<GptOss>(source, options, stream, progress); }},
};

const Entry& entry_for(const json::Value& config) {
  std::string supported;
  for (const Entry& entry : kModels) {
    if (entry.matches(config)) return entry;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", entry.type);
  }
  std::string found = "missing";
  if (const json::Value* type = config.is_object() ? config.as_object().if_contains("model_type") : nullptr) {
    found = json::serialize(*type).substr(0, 60);
  }
  throw StartError(fmt::format("config.json: model_type is {}; supported: {}", found, supported));
}

}  // namespace

std::unique_ptr<Model> load_model(WeightSource& source, const ModelOptions& options, const Stream& stream,
                                  const Progress& progress) {
  return entry_for(source.config()).load(source, options, stream, progress);
}

ModelShape model_shape(const WeightSource& source) {
  const json::Value& config = source.config();
  return entry_for(config).shape(config);
}

void visit_model_specs(const WeightSource& source, const SpecVisitor& visit) {
  const json::Value& config = source.config();
  entry_for(config).visit_specs(config, visit);
}

}  // namespace rose
