// The inputs of each operation of the list, in device memory, and the launch to be timed. Works on any device.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench_ops_cases.h"
#include "bench_ops_memory.h"

namespace rose {

// `copies` sets of what must come from memory and not from the cache; launch(i) works on the i-th.
struct PreparedOp {
  std::unique_ptr<OpMemory> memory = {};
  int copies = 1;
  std::function<void(int copy)> launch = {};
  std::vector<Tensor> outputs = {};  // written by launch(0)
};

// As many copies as make `cold_bytes` together, at most kCopiesMax. Throws StartError where the memory does not hold
// them.
inline constexpr int kCopiesMax = 128;
PreparedOp prepare_op(const OpCase& c, const Stream& stream, const RandomFill& fill, double cold_bytes);

// Numbers of the outputs that were not written or are NaN; of large outputs the last 64 MiB are looked at.
std::int64_t bad_numbers(const PreparedOp& op);

// One copy for each of `inputs`. `launch` takes the stream and one of them.
template <class Inputs, class Launch>
PreparedOp prepared(std::unique_ptr<OpMemory> memory, std::vector<Inputs> inputs, std::vector<Tensor> outputs,
                    Launch launch) {
  const Stream stream = memory->stream();
  const int copies = static_cast<int>(inputs.size());
  return {.memory = std::move(memory),
          .copies = copies,
          .launch = [stream, inputs = std::move(inputs),
                     launch](int i) mutable { launch(stream, inputs[static_cast<std::size_t>(i)]); },
          .outputs = std::move(outputs)};
}

// bench_ops_weights.cc
PreparedOp prepare_linear(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);
PreparedOp prepare_route(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);
PreparedOp prepare_experts(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);

// bench_ops_kv.cc
PreparedOp prepare_rope_append(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);
PreparedOp prepare_attention_plan(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);
PreparedOp prepare_attention(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);
PreparedOp prepare_copy_pages(const OpCase& c, std::unique_ptr<OpMemory> memory, int copies);

}  // namespace rose
