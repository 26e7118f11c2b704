// Weights without files: random values in the shapes of a model, for benchmarks and soak tests. Every rank of every
// plan, and the CPU and a GPU, get the same bits: values are functions of (seed, weight name, index in the whole
// weight).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weights/random_fill/values.h"
#include "weights/source.h"

namespace rose {

class RandomSource : public WeightSource {
 public:
  // name: for describe(); config: a model's config.json; tokenizer_json: handed out as it is.
  RandomSource(std::string name, json::Value config, std::uint64_t seed, std::string tokenizer_json);

  const json::Value& config() const override { return config_; }
  const json::Value& generation_config() const override { return generation_config_; }
  std::string_view tokenizer_json() const override { return tokenizer_json_; }
  std::string_view chat_format() const override { return "harmony"; }
  std::string describe() const override;  // "random gpt-oss-120b (seed 1)"
  WeightFormat expert_format() const override { return WeightFormat::kMxfp4; }

  // Written by the arena's device itself. Values keep activations of order 1 through every layer:
  //
  //   norms           uniform in (0.5, 1.5)
  //   other vectors   (sinks) uniform, standard deviation 1
  //   embedding       uniform, standard deviation 1
  //   other matrices  uniform, standard deviation 1 / sqrt(in); so router logits have 1, and so do the model's
  //   experts         mxfp4, all 16 codes, scale bytes b - 2 .. b + 2 with the b that brings the standard deviation
  //                   nearest to 1 / sqrt(in); every FP8 tile of them is exact
  //   biases          uniform, standard deviation 0.02; of the router 0.25: some experts are asked for more than others
  //
  // Experts in another format than mxfp4 are a StartError.
  Weight load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
              const Stream& stream) override;

 private:
  RandomRegion region(const WeightSpec& spec, RandomKind kind, std::string_view tensor) const;

  std::string name_;
  json::Value config_;
  json::Value generation_config_;
  std::uint64_t seed_;
  std::string tokenizer_json_;
};

// "20b" or "120b": gpt-oss in the published shape. StartError for another size.
std::unique_ptr<WeightSource> open_random_weights(std::string_view size, std::uint64_t seed,
                                                  std::string tokenizer_json);

}  // namespace rose
