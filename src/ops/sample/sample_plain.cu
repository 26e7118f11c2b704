// Plain rows (sample_plain.cuh), which nearly all are: the largest logit, or a draw from all of them.
//
// Bound: 4 * vocabulary bytes a row, read once: 23 us for 128 rows from HBM.
//
// Mapping: a cluster of 8 blocks a row, and blocks so small that all rows of a batch run at once: their latencies hide
// behind each other's loads. Warp w of block b has segment b * kWarps + w of neighbouring units of 256 tokens: two
// lines of 128, of which a lane has four neighbours. Lane i keeps what is known of the segment's i-th unit.
//
//   every unit, while it is in registers: its largest logit and, for a draw, the sum of its tokens' weights beside that
//   the largest logit of each segment -> all blocks
//   greedy: the warp with the first segment that has the largest of all finds it in the first such unit
//   draw: units weighed by their largest beside that of all, their sums -> all blocks; the warp whose segment the
//   target
//         falls into finds the unit, then, reading it again, the token
//
// Sums are of integers, 2^44 for a weight of 1, and units do not depend on the launch: nor does a draw.
#include "device/cuda/launch.cuh"
#include "ops/sample/sample_cluster.cuh"
#include "ops/sample/sample_plain.cuh"
#include "ops/sample/sample_random.cuh"
#include "ops/sample/sample_select.cuh"

namespace rose::ops::cuda {
namespace {

constexpr int kLine = 128, kUnit = 2 * kLine;  // tokens
constexpr int kBlocks = SampleConfig::kBlocks;
constexpr std::uint32_t kNanKey = 0xffffffffu;
constexpr int kThreadsAtOnce = 1536;  // on a multiprocessor; more would have too few registers

template <int kThreads>
struct PlainShared {
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kSegments = kBlocks * kWarps;
  static constexpr int kUnitsMax = (SampleConfig::kVocabularyMax + kUnit - 1) / kUnit;
  static constexpr int kEach = (kSegments + 31) / 32;  // segments of a lane that looks at all
  static_assert((kUnitsMax + kSegments - 1) / kSegments <= 32, "a lane a unit");

  std::uint64_t sums[kSegments];  // of weights; written by all blocks, as the keys are
  std::uint32_t keys[kSegments];  // ordered(the largest), kNanKey where there is a NaN
};

struct PlainRow {
  const float* logits;
  int vocabulary, lane;

  // Of a unit, the lane's four tokens of both lines; -inf beyond the vocabulary.
  __device__ void load(int unit, float4 (&z)[2]) const {
    const int first = unit * kUnit + lane * 4;
    const float* const from = logits + first;
    if ((unit + 1) * kUnit <= vocabulary) {
      z[0] = __ldcg(reinterpret_cast<const float4*>(from));
      z[1] = __ldcg(reinterpret_cast<const float4*>(from + kLine));
      return;
    }
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      const int left = vocabulary - first - line * kLine;
      z[line].x = left > 0 ? __ldcg(from + line * kLine) : -INFINITY;
      z[line].y = left > 1 ? __ldcg(from + line * kLine + 1) : -INFINITY;
      z[line].z = left > 2 ? __ldcg(from + line * kLine + 2) : -INFINITY;
      z[line].w = left > 3 ? __ldcg(from + line * kLine + 3) : -INFINITY;
    }
  }
};

// NaN if one of them is.
__device__ inline float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ inline float max_nan(const float4& z) { return max_nan(max_nan(z.x, z.y), max_nan(z.z, z.w)); }

// What lane i knows of the segment's i-th unit.
struct PlainUnit {
  std::uint32_t key = 0;  // of its largest
  std::uint64_t sum = 0;  // of its weights beside that
};

template <class Weigher>
__device__ inline PlainUnit weigh_unit(const float4 (&z)[2], const Weigher& weigher) {
  const float most = max_nan(max_nan(z[0]), max_nan(z[1]));
  PlainUnit unit{__reduce_max_sync(kAllLanes, isnan(most) ? kNanKey : ordered(most)), 0};
  if constexpr (Weigher::kWeighs) {
    const float top = from_ordered(unit.key);
    FixedSum<8> weights;
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      weights.add(weigher(z[line].x, top));
      weights.add(weigher(z[line].y, top));
      weights.add(weigher(z[line].z, top));
      weights.add(weigher(z[line].w, top));
    }
    unit.sum = weights.total();
  }
  return unit;
}

// All units of a segment, each on its way while the one before is weighed.
template <class Weigher>
__device__ inline PlainUnit read_segment(const PlainRow& row, const Weigher& weigher, int begin, int end) {
  PlainUnit own;
  float4 z[2], next[2];
  const int whole_end = min(end, row.vocabulary / kUnit);
  const auto* from = reinterpret_cast<const float4*>(row.logits + begin * kUnit) + row.lane;
  const auto load_next = [&] {
    next[0] = __ldcg(from);
    next[1] = __ldcg(from + kLine / 4);
    from += kUnit / 4;
  };
  int mine = row.lane;
  if (begin < whole_end) load_next();
  for (int left = whole_end - begin; left > 0; --left, --mine) {
    z[0] = next[0], z[1] = next[1];
    if (left > 1) load_next();
    const PlainUnit unit = weigh_unit(z, weigher);
    if (mine == 0) own = unit;
  }
  if (whole_end < end) {  // the row's last unit is not whole
    row.load(end - 1, z);
    const PlainUnit unit = weigh_unit(z, weigher);
    if (row.lane == end - 1 - begin) own = unit;
  }
  return own;
}

// The warp's value, the same in all its lanes, to the segment's place in all blocks.
template <class T>
__device__ inline void tell(const PlainRow& row, T* all, int segment, T value) {
  if (row.lane < kBlocks) *in_block(all + segment, row.lane) = value;
  cluster_sync();
}

__device__ inline std::uint64_t warp_sum(std::uint64_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

__device__ inline void write_plain(const SampleParams& params, const SampleOptions& options, int r, int token) {
  params.tokens[r * params.tokens_stride] = token;
  if (options.slot >= 0 && options.slot < params.slots) {
    params.last_tokens[options.slot * params.last_tokens_stride] = max(token, 0);
  }
}

// The first token of a unit that has the key; one does.
__device__ inline int first_with(const PlainRow& row, int unit, std::uint32_t key) {
  float4 z[2];
  row.load(unit, z);
  int first = kUnit;
#pragma unroll
  for (int line = 1; line >= 0; --line) {
    const int token = line * kLine + row.lane * 4;
    if (ordered(z[line].w) == key) first = token + 3;
    if (ordered(z[line].z) == key) first = token + 2;
    if (ordered(z[line].y) == key) first = token + 1;
    if (ordered(z[line].x) == key) first = token;
  }
  return unit * kUnit + __reduce_min_sync(kAllLanes, first);
}

struct Place {
  int index;             // of the part that the target falls into
  std::uint64_t before;  // the sum of those before it
};
// kCount parts a lane, in order; the target is below their sum.
template <int kCount>
__device__ inline Place place_of(const std::uint64_t (&parts)[kCount], int lane, std::uint64_t target) {
  std::uint64_t own = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) own += parts[i];
  std::uint64_t before = inclusive_scan(own, lane) - own;
  const bool mine = target >= before && target - before < own;
  int index = 0;
#pragma unroll
  for (int i = 0; i < kCount - 1; ++i) {
    if (index == i && target - before >= parts[i]) {
      before += parts[i];
      ++index;
    }
  }
  const int from = __ffs(static_cast<int>(__ballot_sync(kAllLanes, mine))) - 1;
  return {__shfl_sync(kAllLanes, lane * kCount + index, from), __shfl_sync(kAllLanes, before, from)};
}

// The token of a unit, `target` being below its sum.
template <class Weigher>
__device__ inline int token_at(const PlainRow& row, const Weigher& weigher, int unit, float top, std::uint64_t target) {
  float4 z[2];
  row.load(unit, z);
  std::uint64_t weights[4], sum = 0;
  int line = 0;
#pragma unroll
  for (int i = 1; i >= 0; --i) {  // the second line's weights stay where the target lies beyond the first's
    const std::uint64_t of_line[4] = {fixed_point(weigher(z[i].x, top)), fixed_point(weigher(z[i].y, top)),
                                      fixed_point(weigher(z[i].z, top)), fixed_point(weigher(z[i].w, top))};
    sum = warp_sum(of_line[0] + of_line[1] + of_line[2] + of_line[3]);
    if (i == 1 || target < sum) {
      line = i;
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[j] = of_line[j];
    }
  }
  return unit * kUnit + line * kLine + place_of(weights, row.lane, line == 0 ? target : target - sum).index;
}

template <int kThreads, class Weigher>
__device__ inline void sample_plain_row(PlainShared<kThreads>& shared, const SampleParams& params,
                                        const SampleOptions& options, const PlainRow& row, int r,
                                        const Weigher& weigher) {
  using Shared = PlainShared<kThreads>;
  constexpr int kEach = Shared::kEach;
  const int segment = cluster_block() * Shared::kWarps + static_cast<int>(threadIdx.x) / 32;
  const int units = (row.vocabulary + kUnit - 1) / kUnit;
  const int begin = units * segment / Shared::kSegments, end = units * (segment + 1) / Shared::kSegments;
  const PlainUnit unit = read_segment(row, weigher, begin, end);
  tell(row, shared.keys, segment, __reduce_max_sync(kAllLanes, unit.key));
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = row.lane; i < Shared::kSegments; i += 32) largest = max(largest, shared.keys[i]);
  largest = __reduce_max_sync(kAllLanes, largest);
  const float top = from_ordered(largest);
  if (largest == kNanKey || top == -INFINITY) {  // the row failed
    if (segment == 0 && row.lane == 0) write_plain(params, options, r, -1);
    return;
  }
  int token = -1;
  if constexpr (Weigher::kWeighs) {
    const double share = weigher(from_ordered(unit.key), top);
    const std::uint64_t weight = row.lane < end - begin ? __double2ull_rn(static_cast<double>(unit.sum) * share) : 0;
    tell(row, shared.sums, segment, warp_sum(weight));
    std::uint64_t sums[kEach], total = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = row.lane * kEach + i;
      sums[i] = at < Shared::kSegments ? shared.sums[at] : 0;
      total += sums[i];
    }
    const std::uint64_t target = draw_below(warp_sum(total), options.seed, options.counter);
    const Place drawn = place_of(sums, row.lane, target);
    if (drawn.index != segment) return;
    const std::uint64_t weights[1] = {weight};
    const Place place = place_of(weights, row.lane, target - drawn.before);
    // From the unit's share of the row to its own sum.
    const std::uint64_t sum = __shfl_sync(kAllLanes, unit.sum, place.index);
    const double scale = static_cast<double>(sum) / static_cast<double>(__shfl_sync(kAllLanes, weight, place.index));
    const auto within = static_cast<std::uint64_t>(static_cast<double>(target - drawn.before - place.before) * scale);
    token = token_at(row, weigher, begin + place.index, from_ordered(__shfl_sync(kAllLanes, unit.key, place.index)),
                     min(within, sum - 1));
  } else {
    bool earlier = false;
    for (int i = row.lane; i < segment; i += 32) earlier |= shared.keys[i] == largest;
    const std::uint32_t here = __ballot_sync(kAllLanes, row.lane < end - begin && unit.key == largest);
    if (__any_sync(kAllLanes, earlier) || here == 0) return;
    token = first_with(row, begin + __ffs(static_cast<int>(here)) - 1, largest);
  }
  if (row.lane == 0) write_plain(params, options, r, token);
}

template <int kThreads>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, kThreadsAtOnce / kThreads)
    sample_plain_kernel(const __grid_constant__ SampleParams params) {
  __shared__ PlainShared<kThreads> shared;
  cluster_arrive();
  ptx::dependents_launch();
  ptx::dependency_wait();
  const int r = static_cast<int>(blockIdx.x) / kBlocks;
  const SampleOptions& options = params.options[r];
  const PlainRow row{params.logits + r * params.stride, params.vocabulary, static_cast<int>(threadIdx.x) % 32};
  cluster_wait();  // all blocks have started: their shared memory may be written
  if (!is_plain(params, options)) return;
  if (options.temperature == 0) return sample_plain_row(shared, params, options, row, r, GreedyWeigher{});
  if (options.temperature == 1) return sample_plain_row(shared, params, options, row, r, UnitWeigher{});
  sample_plain_row(shared, params, options, row, r, DividingWeigher(options.temperature));
}

template <int kThreads>
void launch_threads(const SampleParams& params, cudaStream_t stream) {
  rose::cuda::launch(
      &sample_plain_kernel<kThreads>, "sample_plain",
      {.grid = dim3(static_cast<unsigned>(params.rows * kBlocks)), .block = dim3(kThreads), .overlap_previous = true},
      stream, params);
}

}  // namespace

void launch_sample_plain(const SampleParams& params, cudaStream_t stream) {
  if (params.rows <= 16) return launch_threads<768>(params, stream);
  if (params.rows <= 64) return launch_threads<384>(params, stream);
  launch_threads<192>(params, stream);
}

}  // namespace rose::ops::cuda
