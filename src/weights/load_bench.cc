// Loading one layer's experts at the published width (hidden = intermediate = 2880) from a checkpoint in the page
// cache: what is left when the disk is not the limit. Bytes are those read; the bound is the machine's copy speed.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>

#include "weights/rose_writer.h"
#include "weights/stored.h"
#include "weights/testing/checkpoint.h"

namespace rose {
namespace {

const synthetic::Shape kLayer{
    .layers = 1, .hidden = 2880, .intermediate = 2880, .experts = 8, .heads = 4, .kv_heads = 2};

// The checkpoint and the rose file made from it, removed at the end.
class Files {
 public:
  Files() : folder_((std::filesystem::temp_directory_path() / fmt::format("rose_load_bench_{}", ::getpid())).string()) {
    synthetic::write_checkpoint(folder_, kLayer, synthetic::published_tensors(kLayer, 1));
    const auto source = open_stored(folder_, {.threads = 2});
    write_rose_file(*source, synthetic::specs(kLayer), rose(), "bench", {}, nullptr, [] { return false; });
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  const std::string& checkpoint() const { return folder_; }
  std::string rose() const { return folder_ + "/model.rose"; }

 private:
  std::string folder_;
};

const Files& files() {
  static const Files made;
  return made;
}

void load_experts(benchmark::State& state, const std::string& path, WeightFormat format, bool staged = false) {
  std::size_t bytes = 0, read = 0;
  for (const WeightSpec& spec : synthetic::specs(kLayer)) {
    if (spec.kind != WeightKind::kExperts) continue;
    bytes += slice_bytes(spec, slice_of(spec, {}, 0), format);
    read += slice_bytes(spec, slice_of(spec, {}, 0), WeightFormat::kMxfp4);
  }
  for (auto _ : state) {
    state.PauseTiming();
    const auto source = open_stored(path, {.threads = static_cast<int>(state.range(0)), .staged = staged});
    Arena arena(Device{}, bytes, "bench");
    state.ResumeTiming();
    for (const WeightSpec& spec : synthetic::specs(kLayer)) {
      if (spec.kind == WeightKind::kExperts)
        benchmark::DoNotOptimize(source->load(spec, {}, 0, format, arena, Stream::cpu(1)));
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(read) * state.iterations());
}

void checkpoint_as_mxfp4(benchmark::State& state) { load_experts(state, files().checkpoint(), WeightFormat::kMxfp4); }
void checkpoint_as_fp8(benchmark::State& state) { load_experts(state, files().checkpoint(), WeightFormat::kFp8); }
void checkpoint_as_bf16(benchmark::State& state) { load_experts(state, files().checkpoint(), WeightFormat::kBf16); }
void rose_file_checked(benchmark::State& state) { load_experts(state, files().rose(), WeightFormat::kMxfp4); }
// The host's part of loading to a GPU: its copies are one more here, of the CPU.
void checkpoint_staged(benchmark::State& state) {
  load_experts(state, files().checkpoint(), WeightFormat::kMxfp4, true);
}
BENCHMARK(checkpoint_as_mxfp4)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(checkpoint_staged)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(checkpoint_as_fp8)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(checkpoint_as_bf16)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(rose_file_checked)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rose
