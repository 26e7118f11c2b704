// Where weights come from: a published checkpoint folder, or the single file that `rose convert` writes. Both give the
// same Weights for the same specs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/stream.h"
#include "json/json.h"
#include "tensor/arena.h"
#include "weights/spec.h"

namespace rose {

// progress(done_bytes, total_bytes); called from the loading thread.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual const json::Value& config() const = 0;             // config.json
  virtual const json::Value& generation_config() const = 0;  // generation_config.json, {} if absent
  virtual std::string_view tokenizer_json() const = 0;       // tokenizer.json's bytes
  virtual std::string_view chat_format() const = 0;          // "harmony"
  virtual std::string describe() const = 0;                  // "checkpoint models/rose-tiny (mxfp4 experts)"
  virtual WeightFormat expert_format() const = 0;            // as stored

  // The part of `spec` that `rank` holds, in arena memory, its experts in `format`. Experts stored as mxfp4 load as
  // mxfp4, fp8 (exact, or StartError naming the tile that is not) or bf16; stored as bf16 they load as bf16, or
  // quantized to fp8 or mxfp4 by rounding to nearest. Throws StartError naming file, tensor, what was found and what
  // was expected. The stream is of the arena's device; the weight is there when the stream's work so far is done, and
  // the source must live until then. Several ranks may load from their own threads.
  virtual Weight load(const WeightSpec& spec, const ParallelPlan& plan, int rank, WeightFormat format, Arena& arena,
                      const Stream& stream) = 0;
};

// A folder is a checkpoint; a file must be a rose file. Throws StartError saying what is wrong with the path.
std::unique_ptr<WeightSource> open_weights(const std::string& path);

}  // namespace rose
