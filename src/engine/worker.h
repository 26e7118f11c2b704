// One rank: its model, its memory and its own thread. The loop thread launches steps and collects what they sampled; up
// to kStepsInFlightMax of them may be launched and not collected.
//
// On a GPU, decoding steps run as graphs, recorded at the start for every number of rows in BatchLimits::graph_rows. A
// graph covers the model; what its arrays hold and the sampling change from step to step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "decode/sampling/sampler.h"
#include "device/graph.h"
#include "engine/batch.h"
#include "engine/watchdog.h"
#include "models/model.h"

namespace rose {

struct WorkerLimits {
  BatchLimits batch = {};
  std::vector<int> pages = {};  // by KV set
  KvShape kv = {};
  DType activations = DType::kF32;  // of the hidden rows before the unembedding
  bool hash_logits = false;
};

class Worker {
 public:
  static constexpr int kStepsInFlightMax = 2;

  Worker(std::unique_ptr<Model> model, std::unique_ptr<Communicator> communicator, Stream stream,
         const WorkerLimits& limits);
  ~Worker();  // after every launched step has run
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns at once. `batch` must stay as it is until the step has been collected.
  void launch(const StepBatch& batch);
  // Waits for the oldest launched step. The spans are valid until the step after the next is launched.
  StepResults collect();

  // From any thread while the worker lives; waits for nothing.
  RankProgress progress() const;

  const Model& model() const { return *model_; }
  Device device() const { return stream_.device(); }
  // Of the logits of every step collected so far, in order: equal from run to run of the same requests.
  std::uint64_t logits_hash() const { return logits_hash_; }
  std::string memory_table() const { return arena_->table(); }
  static std::size_t bytes(const Model& model, const WorkerLimits& limits);

 private:
  struct Results {  // on the host
    Tensor tokens, logprobs, top_tokens, top_logprobs;
    int rows = 0;
    bool wants_logprobs = false;
    double seconds = 0;  // on the CPU; a GPU's are those between the events
    Event begun, done;
    std::uint64_t logits_hash = 0;
  };

  void loop();
  void run(const StepBatch& batch, std::byte* slab, Results& results);
  void forward(const BatchLayout& layout, const BatchView& view, const ModelOutputs& outputs);
  void record_graphs();
  void hash_logits(const Tensor& logits);

  WorkerLimits limits_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Communicator> communicator_;
  Stream stream_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> host_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Sampler> sampler_;
  Tensor hidden_, logits_;
  std::map<int, Graph> graphs_;  // by rows
  std::byte* slabs_[kStepsInFlightMax] = {};
  Results results_[kStepsInFlightMax];
  std::uint64_t hash_ = 0;         // of the worker's thread
  std::uint64_t logits_hash_ = 0;  // of the loop thread: as of the last step collected

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<const StepBatch*> launched_;  // not yet run
  bool stopping_ = false;
  // Atomic for progress() alone. Launched and run change under the mutex; launched and collected belong to the loop
  // thread.
  std::atomic<std::uint64_t> steps_launched_ = 0, steps_run_ = 0, steps_collected_ = 0;
  std::atomic<bool> collecting_ = false;
  struct Extent {
    std::atomic<int> rows = 0, graph_rows = 0;
  };
  Extent extents_[kStepsInFlightMax];
  std::atomic<const ThreadPlace*> place_ = nullptr;  // of the worker's thread
  std::thread thread_;
};

}  // namespace rose
