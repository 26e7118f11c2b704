// Runs a scheduler against the fake model on one thread, with nothing left to chance: the caller says when steps are
// planned, run and committed. Samples greedily, by a few plain lines of its own. Checks the scheduler's invariants
// after each call, and that every request hears of its tokens once, in order, and of one end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/scheduler.h"
#include "engine/testing/fake_model.h"

namespace rose::testing {

struct StepperOptions {
  FakeModelOptions model = {};
  SchedulerLimits limits = {};  // context_max, adjustments_max are filled in where 0
  DecoderFactory decoders = {};
};

struct Outcome {
  std::vector<std::int32_t> tokens = {};
  std::vector<std::vector<TokenLogprob>> top_logprobs = {};
  std::optional<FinishReason> finish = {};
};

class Stepper {
 public:
  explicit Stepper(const StepperOptions& options);

  Scheduler& scheduler() { return *scheduler_; }
  void add(Request request, Time now = {});
  void cancel(RequestId id);
  bool plan(Time now = {});    // false: an empty step
  void commit(Time now = {});  // runs and commits the oldest planned step
  int steps_in_flight() const { return static_cast<int>(planned_.size()); }
  // Plans up to `depth` steps ahead until everything has ended; false after `steps_max`.
  bool finish(int depth, int steps_max = 100'000);

  const std::vector<Outcome>& outcome(RequestId id) const { return outcomes_.at(id); }
  int cached_tokens(RequestId id) const { return cached_.at(id); }
  int rows_run() const { return rows_run_; }
  int steps_run() const { return steps_run_; }
  const Step& last_planned() const { return last_planned_; }

 private:
  struct Planned {
    Step step;
    std::unique_ptr<Arena> arena;
    std::unique_ptr<StepBatch> batch;
  };
  void run(Planned& planned, std::vector<std::int32_t>& tokens);
  std::int32_t sample(const float* logits, const ops::SampleRow& row, const ops::SampleInputs& in) const;
  void check_writers(const Step& step) const;
  void take_events();

  StepperOptions options_;
  BatchLimits batch_limits_;
  Stream stream_ = Stream::cpu(1);
  std::unique_ptr<Communicator> communicator_ = make_solo_communicator();
  std::unique_ptr<Model> model_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<KvCache> kv_;
  Tensor logits_;
  std::vector<std::int32_t> last_tokens_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Planned> planned_;
  Step last_planned_;
  std::map<RequestId, std::vector<Outcome>> outcomes_;
  std::map<RequestId, int> cached_;
  int rows_run_ = 0;
  int steps_run_ = 0;
};

// The tokens that `request` must get with temperature 0, and how it ends, whatever runs beside it.
Outcome expected_outcome(const Request& request, const StepperOptions& options);

// Proposes the model's own next tokens, each spoiled with probability 1 - quality: drafts of any quality.
DecoderFactory draft_decoders(const FakeModelOptions& model, int drafts_max, double quality);

}  // namespace rose::testing
