#include <algorithm>
#include <chrono>
#include <thread>

#include "bench_model.h"
#include "bench_requests.h"
#include "engine/request_check.h"

namespace rose {
namespace {

struct Shape {
  int sequences = 1;
  int prompt_tokens = 0;
  int steps = 0;  // behind the first token
};

// One request of so many choices: which rows a step has then depends on nothing but the request, where several
// requests meet in the order in which they happen to arrive.
void run_to_the_end(BenchRequests& requests, const Shape& shape) {
  const std::uint64_t before = requests.engine().stats().generated_tokens;
  const int tokens_each = 1 + shape.steps;
  const BenchRequests::Sent sent = requests.send(shape.prompt_tokens, tokens_each, shape.sequences);
  const auto tokens = static_cast<std::size_t>(shape.sequences) * static_cast<std::size_t>(tokens_each);
  sent.sink->wait_tokens(tokens);
  sent.sink->wait_end();
  // What stats() says follows shortly.
  while (requests.engine().stats().generated_tokens < before + tokens) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void hash_shape(const BenchRun& run, BenchRequests& requests, const Shape& shape) {
  const CardState before = run.report.card_state();
  run_to_the_end(requests, shape);
  const std::string hash = fmt::format("{:016x}", run.model.engine->stats().logits_hash);
  std::printf("%9d %14d %7d  %s\n", shape.sequences, shape.prompt_tokens, shape.steps, hash.c_str());
  std::fflush(stdout);
  json::Object row = model_fields(run, "logits");
  row["batch"] = shape.sequences;
  row["context"] = shape.prompt_tokens;
  row["steps"] = shape.steps;
  row["logits_hash"] = hash;
  run.report.add(std::move(row), before);
}

}  // namespace

void hash_logits(const BenchRun& run, const PrefillOptions* prefill, const DecodeOptions* decode) {
  std::vector<Shape> shapes;
  if (prefill != nullptr) {
    for (const int tokens : lengths_that_fit(run, *prefill)) shapes.push_back({.prompt_tokens = tokens});
  }
  if (decode != nullptr) {
    for (const int context : decode->contexts) {
      for (const int batch : decode->batches) {
        if (batch > kChoicesMax) {
          throw StartError(fmt::format("--hash-logits takes a --batch of up to {}, not {}", kChoicesMax, batch),
                           kExitUsage);
        }
        shapes.push_back({.sequences = batch, .prompt_tokens = context, .steps = decode->steps});
      }
    }
  }
  BenchRequests requests(*run.model.engine, run.model.shape.vocabulary);
  std::printf(
      "\nhash (XXH3) of all logits so far, behind each row; each runs once, the sequences of a row are one request.\n"
      "No times: copying and hashing the logits takes longer than the steps\n\n"
      "%9s %14s %7s  %s\n",
      "sequences", "prompt tokens", "steps", "logits so far");
  for (const Shape& shape : shapes) hash_shape(run, requests, shape);
}

}  // namespace rose
