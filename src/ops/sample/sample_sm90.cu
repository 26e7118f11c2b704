// One token from each row of logits: see sample.h for the formula.
//
// A cluster of 8 blocks takes a row: 201,088 logits are 98 KB a block, so the row is read once, into shared memory, and
// everything after that happens there:
//
//   load -> [log sum exp, the largest 20 of the logits as given] -> adjust, mask -> largest
//        -> [radix selection of the top_k, top_p prefix] -> weights, their sums by rising token -> the draw
//
// What stands in brackets runs only for rows that want it; the options are read on the device, so a captured graph
// serves any mix of them. Weights are added as 44-bit fixed point (sample_select.cuh): the inverse is exact, whatever
// the order. Blocks meet at a cluster barrier: two for a greedy token, three for a draw, one for each digit of a
// selection.
//
// Bound: 4 * vocabulary bytes a row, 0.2 us from HBM. One row is a chain of latencies (launch, load, barriers).
#include <algorithm>
#include <atomic>

#include "device/cuda/launch.cuh"
#include "ops/sample/sample_plain.cuh"
#include "ops/sample/sample_random.cuh"
#include "ops/sample/sample_select.cuh"

namespace rose::ops::cuda {
namespace {

// The warp's segment, filled up with -inf; is there a NaN among this lane's?
__device__ bool load_segment(const SampleParams& params, const SampleLane& row, const float* logits) {
  const int size = 32 * row.chunk;
  const int count = min(max(params.vocabulary - row.first_token(), 0), size);
  const float* const from = logits + row.first_token();
  const int vectors = params.aligned ? count / 4 : 0;
  bool nan = false;
#pragma unroll 8
  for (int i = row.lane; i < vectors; i += 32) {
    const float4 four = __ldcg(reinterpret_cast<const float4*>(from) + i);
    reinterpret_cast<float4*>(row.segment)[i] = four;
    nan |= isnan(four.x) || isnan(four.y) || isnan(four.z) || isnan(four.w);
  }
  for (int i = 4 * vectors + row.lane; i < size; i += 32) {
    const float value = i < count ? __ldcg(from + i) : -INFINITY;
    row.segment[i] = value;
    nan |= isnan(value);
  }
  __syncwarp();
  return nan;
}

// Adjustments of one token apply in their order. Nearly always there is one a token, so all run at once; where a bitmap
// shows a second one, a single thread takes them all. Tokens beyond the vocabulary fall into no block.
__device__ void adjust(const SampleParams& params, const SampleOptions& options, const SampleLane& row) {
  std::uint32_t* const seen = row.shared->sums_low;  // a bit for each token of the block; zero between selections
  float* const block_logits = row.segment - row.warp * 32 * row.chunk;
  const int first = cluster_block() * SampleConfig::kWarps * 32 * row.chunk;
  const int count = min(max(params.vocabulary - first, 0), SampleConfig::kWarps * 32 * row.chunk);
  const auto apply = [&](const SampleAdjustment& adjustment) {
    const int at = adjustment.token - first;
    if (adjustment.token < first || at >= count) return;
    const float z = block_logits[at];
    const float scaled = z > 0 ? z / adjustment.repetition : __fmul_rn(z, adjustment.repetition);
    block_logits[at] = __fadd_rn(scaled, adjustment.add);
  };
  bool again = false;
  for (int a = options.adjustments_begin + static_cast<int>(threadIdx.x); a < options.adjustments_end;
       a += SampleConfig::kThreads) {
    const int token = params.adjustments[a].token, at = token - first;
    if (token < first || at >= count) continue;
    const std::uint32_t bit = 1u << (at % 32);
    again |= (atomicOr(&seen[at / 32], bit) & bit) != 0;
  }
  if (__syncthreads_or(again) == 0) {
    for (int a = options.adjustments_begin + static_cast<int>(threadIdx.x); a < options.adjustments_end;
         a += SampleConfig::kThreads) {
      apply(params.adjustments[a]);
    }
  } else if (threadIdx.x == 0) {
    for (int a = options.adjustments_begin; a < options.adjustments_end; ++a) apply(params.adjustments[a]);
  }
  for (int i = static_cast<int>(threadIdx.x); i < 32 * row.chunk; i += SampleConfig::kThreads) seen[i] = 0;
  __syncthreads();
}

// Masks the segment and gives this lane's earliest in the falling order; kNan where there is one.
__device__ std::uint64_t earliest(const SampleLane& row, const std::uint32_t* mask, int vocabulary) {
  std::uint32_t best = 0;
  int token = 0;
  bool nan = false;
#pragma unroll 5
  for (int j = 0; j < row.chunk; ++j) {
    const int first = row.first_token() + 32 * j;
    float z = row.segment[32 * j + row.lane];
    if (mask != nullptr && first < vocabulary && (mask[first / 32] >> row.lane & 1) == 0) {
      z = -INFINITY;
      row.segment[32 * j + row.lane] = z;
    }
    nan |= isnan(z);
    const std::uint32_t key = ordered(z);
    if (key > best) {
      best = key;
      token = first + row.lane;
    }
  }
  __syncwarp();
  return nan ? kNan : order_of(best, token);
}

// log sum exp of the logits as given, and their largest to block 0, in any order.
__device__ double given_logits(SampleLane& row, const SampleParams& params, const SampleOptions& options, float top) {
  double log_total = top;
  if (!isinf(top)) {
    std::uint64_t sum = 0;
    for (int j = 0; j < row.chunk; ++j) sum += fixed_point(expf(row.segment[32 * j + row.lane] - top));
    log_total += log(static_cast<double>(cluster_scan(row, sum).total) * 0x1p-44);
  }
  const int count = min(min(options.top_logprobs, SampleConfig::kTopMax), params.vocabulary);
  if (count <= 0) return log_total;
  const Threshold threshold = select_prefix(row, {.count = static_cast<std::uint32_t>(count)});
  Ranks ranks = rank_tokens(row, threshold.least);
  std::uint64_t* const list = in_block(row.shared->top, 0);
  for (int j = 0; j < row.chunk; ++j) {
    const std::uint32_t key = ordered(row.own_chunk()[j]);
    std::uint32_t place = SampleConfig::kTopMax;
    if (key > threshold.least) place = ranks.above++;
    if (key == threshold.least && ranks.ties++ < threshold.ties) place = ranks.above_total + ranks.ties - 1;
    if (place < SampleConfig::kTopMax) list[place] = order_of(key, row.first_token() + row.lane * row.chunk + j);
  }
  __syncwarp();  // chunks have been read: the lanes may now write across them
  return log_total;
}

__device__ float logprob(float logit, double log_total) {
  const double value = logit;
  return value == log_total ? 0.f : static_cast<float>(value - log_total);  // also for inf - inf
}

// One thread of the row.
__device__ void write_token(const SampleParams& params, const SampleShared& shared, int token, double log_total) {
  const SampleOptions& options = shared.options;
  const int r = shared.row;
  params.tokens[r * params.tokens_stride] = token;
  if (options.slot >= 0 && options.slot < params.slots) {
    params.last_tokens[options.slot * params.last_tokens_stride] = max(token, 0);
  }
  if (options.top_logprobs < 0 || params.logprobs == nullptr) return;
  params.logprobs[r * params.logprobs_stride] =
      token < 0 ? -INFINITY : logprob(params.logits[r * params.stride + token], log_total);
}

// One warp of block 0: the list in falling order.
__device__ void write_top(const SampleParams& params, const SampleLane& row, bool failed, double log_total) {
  const SampleOptions& options = row.shared->options;
  const int r = row.shared->row;
  if (options.top_logprobs <= 0 || params.top_tokens == nullptr || row.lane >= SampleConfig::kTopMax) return;
  std::int32_t* const tokens = params.top_tokens + r * params.top_tokens_stride;
  float* const logprobs = params.top_logprobs + r * params.top_logprobs_stride;
  const int count = failed ? 0 : min(min(options.top_logprobs, SampleConfig::kTopMax), params.vocabulary);
  int place = row.lane;
  if (row.lane < count) {
    const std::uint64_t own = row.shared->top[row.lane];
    place = 0;
    for (int i = 0; i < count; ++i) place += row.shared->top[i] > own ? 1 : 0;
    tokens[place] = token_of(own);
    logprobs[place] = logprob(from_ordered(static_cast<std::uint32_t>(own >> 32)), log_total);
  } else {
    tokens[place] = -1;
    logprobs[place] = -INFINITY;
  }
}

// The token, in the one lane whose chunk it lies in; -1 in all others.
__device__ int draw(SampleLane& row, const SampleParams& params, const SampleOptions& options, float top) {
  const Weigher weigher{top, options.temperature};
  const bool counts = options.top_k > 0 && options.top_k < params.vocabulary;
  Threshold threshold;
  std::uint32_t tie = 0;
  if (counts || options.top_p < 1) {
    threshold = select_prefix(row, {.count = counts ? static_cast<std::uint32_t>(options.top_k) : 0xffffffffu,
                                    .share = options.top_p,
                                    .weigher = weigher});
    if (threshold.splits_ties) tie = rank_tokens(row, threshold.least).ties;
  }
  float* const chunk = row.own_chunk();
  std::uint64_t sum = 0;
#pragma unroll 5
  for (int j = 0; j < row.chunk; ++j) {
    const float z = chunk[j];
    const std::uint32_t key = ordered(z);
    bool keep = key > threshold.least;
    if (key == threshold.least) keep = tie++ < threshold.ties;
    float weight = weigher(z);
    if (!keep || (weight < options.min_p && weight != 1)) weight = 0;
    chunk[j] = weight;
    sum += fixed_point(weight);
  }
  const RowScan scan = cluster_scan(row, sum);
  const std::uint64_t target = draw_below(scan.total, options.seed, options.counter);
  if (target < scan.before || target >= scan.before + sum) return -1;
  std::uint64_t reached = scan.before;
  int j = 0;
  for (; j < row.chunk - 1; ++j) {
    reached += fixed_point(chunk[j]);
    if (reached > target) break;
  }
  return row.first_token() + row.lane * row.chunk + j;
}

__device__ void sample_row(SampleLane& row, const SampleParams& params) {
  const SampleOptions& options = row.shared->options;
  const bool nan = load_segment(params, row, params.logits + row.shared->row * params.stride);
  double log_total = 0;
  if (options.top_logprobs >= 0) {
    const std::uint64_t given = earliest(row, nullptr, params.vocabulary);
    const std::uint64_t top = cluster_max(row, nan ? kNan : given);
    if (top != kNan) {
      log_total = given_logits(row, params, options, from_ordered(static_cast<std::uint32_t>(top >> 32)));
    }
  }
  if (options.adjustments_begin < options.adjustments_end && params.adjustments != nullptr) {
    adjust(params, options, row);
  }
  const bool masked = options.mask_row >= 0 && options.mask_row < params.mask_rows;
  const std::uint64_t own =
      earliest(row, masked ? params.masks + options.mask_row * params.mask_stride : nullptr, params.vocabulary);
  const std::uint64_t best = cluster_max(row, nan ? kNan : own);
  const float top = from_ordered(static_cast<std::uint32_t>(best >> 32));
  const bool failed = best == kNan || top == -INFINITY;
  if (cluster_block() == 0 && row.warp == 0) write_top(params, row, failed, log_total);
  if (failed || options.temperature == 0) {
    if (cluster_block() == 0 && threadIdx.x == 0) {
      write_token(params, *row.shared, failed ? -1 : token_of(best), log_total);
    }
    return;
  }
  const int token = draw(row, params, options, top);
  if (token >= 0) write_token(params, *row.shared, token, log_total);
}

// Of rows r, r + clusters, ..: the first that is not plain.
__device__ int next_row(const SampleParams& params, int r) {
  const int clusters = static_cast<int>(gridDim.x) / SampleConfig::kBlocks;
  for (; r < params.rows; r += 32 * clusters) {
    const int own = r + static_cast<int>(threadIdx.x) % 32 * clusters;
    const std::uint32_t wanted = __ballot_sync(kAllLanes, own < params.rows && !is_plain(params, params.options[own]));
    if (wanted != 0) return r + (__ffs(static_cast<int>(wanted)) - 1) * clusters;
  }
  return params.rows;
}

__global__ void __cluster_dims__(SampleConfig::kBlocks, 1, 1) __launch_bounds__(SampleConfig::kThreads, 1)
    sample_kernel(const __grid_constant__ SampleParams params) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const shared = reinterpret_cast<SampleShared*>(memory);
  auto* const histograms = reinterpret_cast<uint4*>(shared);
  static_assert(offsetof(SampleShared, block_sums) == 3 * SampleConfig::kBuckets * 32 * sizeof(std::uint32_t));
  for (int i = static_cast<int>(threadIdx.x); i < 3 * SampleConfig::kBuckets * 32 / 4; i += SampleConfig::kThreads) {
    histograms[i] = {0, 0, 0, 0};
  }
  cluster_arrive();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  SampleLane row{.shared = shared,
                 .segment = reinterpret_cast<float*>(memory + kSampleSharedBytes) + warp * 32 * params.chunk,
                 .lane = static_cast<int>(threadIdx.x) % 32,
                 .warp = warp,
                 .chunk = params.chunk};
  ptx::dependents_launch();
  ptx::dependency_wait();
  cluster_wait();  // all blocks have started: their shared memory may be written
  for (int r = next_row(params, static_cast<int>(blockIdx.x) / SampleConfig::kBlocks); r < params.rows;) {
    if (threadIdx.x == 0) {
      shared->options = params.options[r];
      shared->row = r;
    }
    __syncthreads();
    sample_row(row, params);
    r = next_row(params, shared->row + static_cast<int>(gridDim.x) / SampleConfig::kBlocks);
    __syncthreads();  // the next row is written over this one
  }
}

// Clusters that run at once, whatever the vocabulary: a block's threads fill a multiprocessor.
int clusters_at_once() {
  static std::atomic<int> known;
  if (const int clusters = known.load(); clusters > 0) return clusters;
  constexpr std::size_t kSharedBytes = kSampleSharedBytes + 4 * SampleConfig::kThreads * SampleConfig::kChunkMax;
  rose::cuda::check_status(
      cudaFuncSetAttribute(&sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes)),
      "sample");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {SampleConfig::kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(SampleConfig::kBlocks * 64);
  config.blockDim = dim3(SampleConfig::kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  rose::cuda::check_status(cudaOccupancyMaxActiveClusters(&clusters, &sample_kernel, &config), "sample");
  known.store(std::max(clusters, 1));
  return std::max(clusters, 1);
}

}  // namespace

static_assert(kSampleSharedBytes + SampleConfig::kWarps * 32 * SampleConfig::kChunkMax * 4 <= 227 * 1024);
static_assert(SampleConfig::kWarps * 32 * SampleConfig::kChunkMax <= 32 * SampleConfig::kBuckets * 32, "adjust's bits");

void launch_sample(const SampleParams& params, cudaStream_t stream) {
  const std::size_t logits = sizeof(float) * SampleConfig::kThreads * static_cast<std::size_t>(params.chunk);
  const unsigned clusters = static_cast<unsigned>(std::min(params.rows, clusters_at_once()));
  rose::cuda::launch(&sample_kernel, "sample",
                     {.grid = dim3(clusters * SampleConfig::kBlocks),
                      .block = dim3(SampleConfig::kThreads),
                      .shared_bytes = kSampleSharedBytes + logits,
                      .overlap_previous = true},
                     stream, params);
}

}  // namespace rose::ops::cuda
