#include "ops/experts/experts_cuda.h"

#include <algorithm>

#include "device/cuda/gpu.h"
#include "device/cuda/tensor_map.h"
#include "ops/experts/experts_decode_cuda.h"
#include "ops/experts/experts_params.cuh"

namespace rose::ops::cuda {
namespace {

using rose::cuda::make_tensor_map;
using rose::cuda::MapType;
using rose::cuda::Swizzle;

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
std::int64_t blocks_of(std::int64_t size) { return (size + 127) / 128; }

// Rows an expert up to which products are bound by the bytes of the weights.
constexpr int kNarrowMean = 30;

// Rows up to which the products of bf16 activations are the faster ones.
constexpr int kExactRows = 8;

// Places of the sorted order: every run may waste up to its alignment; loads of a last tile may look past the end.
int positions_of(const ExpertWorkShape& shape) {
  return shape.rows_max * shape.experts_per_token + shape.experts_held * ExpertSort::kRunAlignment + ExpertWide::kRows;
}

struct WorkLayout {
  explicit WorkLayout(const ExpertWorkShape& shape)
      : positions_stride(static_cast<int>(rounded_up(positions_of(shape), 8))) {
    const auto stride = static_cast<std::size_t>(positions_stride), rows = static_cast<std::size_t>(shape.rows_max),
               top = static_cast<std::size_t>(shape.experts_per_token),
               held = static_cast<std::size_t>(shape.experts_held), hidden = static_cast<std::size_t>(shape.hidden);
    const auto hidden_steps = static_cast<std::size_t>(blocks_of(shape.hidden)),
               intermediate_steps = static_cast<std::size_t>(blocks_of(shape.intermediate));
    positions = take(rows * top * 4);
    weights = take(stride * 4);
    tiles = take((rows * top / ExpertNarrow::kRows + held) * 16);
    tile_count = take(4);
    x = take(stride * hidden_steps * 128);
    x_scales = take((hidden_steps + 1) / 2 * stride * 4);
    activations = take(stride * intermediate_steps * 128);
    weighted = take(stride * hidden * 2);
  }
  std::size_t take(std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + 1023) / 1024 * 1024;
    return at;
  }
  int positions_stride;
  std::size_t bytes = 0, positions, weights, tiles, tile_count, x, x_scales, activations, weighted;
};

template <class T>
T* at(const ExpertWork& work, std::size_t offset) {
  return static_cast<T*>(static_cast<void*>(static_cast<std::byte*>(work.memory) + offset));
}

// Boxes of 128 features by one stage's inputs: 128 bytes.
CUtensorMap weight_map(const Weight& weight) {
  const auto row = static_cast<std::uint64_t>(weight.format == WeightFormat::kFp8 ? weight.in : weight.in / 2),
             out = static_cast<std::uint64_t>(weight.out);
  return make_tensor_map<3>(weight.payload.raw(), MapType::kByte,
                            {{row, out, static_cast<std::uint64_t>(weight.experts)}, {row, row * out}, {128, 128, 1}},
                            Swizzle::k128);
}

// Boxes of one or two steps of 128 inputs by a part's rows.
CUtensorMap rows_map(const void* x, std::int64_t steps, int positions, int rows, int box_steps) {
  const auto row = static_cast<std::uint64_t>(steps) * 128;
  return make_tensor_map<3>(x, MapType::kByte,
                            {{128, static_cast<std::uint64_t>(positions), static_cast<std::uint64_t>(steps)},
                             {row, 128},
                             {128, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(box_steps)}},
                            Swizzle::k128);
}

ExpertProduct product(const Weight& weight, const ExpertScales& scales, const void* x, int positions_stride) {
  ExpertProduct params{};
  const int steps = weight.format == WeightFormat::kFp8 ? 1 : 2;
  for (int i = 0; i < ExpertProduct::kWidths; ++i) {
    params.x[i] = rows_map(x, blocks_of(weight.in), positions_stride, 8 * (i + 1), steps);
  }
  params.weight = weight_map(weight);
  params.weight_scales = scales.scales.empty() ? nullptr : scales.scales.as<std::uint8_t>();
  params.weight_bases = scales.bases.as<float>();
  params.bias = static_cast<const std::uint16_t*>(weight.bias.raw());
  params.in = static_cast<int>(weight.in);
  params.out_features = static_cast<int>(weight.out);
  params.out_padded = static_cast<int>(rounded_up(weight.out, 128));
  params.positions_stride = positions_stride;
  return params;
}

template <ExpertStage kStage, ExpertForm kForm>
void launch(const ExpertProduct& params, ExpertTiles tiles, const Stream& stream) {
  const int multiprocessors = rose::cuda::multiprocessors(stream);
  const cudaStream_t native = rose::cuda::native_stream(stream);
  switch (tiles) {
    case ExpertTiles::kNarrow:
      return launch_expert_product<kStage, kForm, ExpertNarrow>(params, multiprocessors, native);
    case ExpertTiles::kWide:
      return launch_expert_product<kStage, kForm, ExpertWide>(params, multiprocessors, native);
  }
}

template <ExpertStage kStage>
void launch(const ExpertProduct& params, WeightFormat format, ExpertTiles tiles, const Stream& stream) {
  if (format == WeightFormat::kFp8) {
    launch<kStage, ExpertForm::kFp8>(params, tiles, stream);
  } else {
    launch<kStage, ExpertForm::kMxfp4>(params, tiles, stream);
  }
}

}  // namespace

std::int64_t expert_scale_bytes(WeightFormat format, std::int64_t experts, std::int64_t out, std::int64_t in) {
  if (format != WeightFormat::kMxfp4) return 0;
  return experts * ((in + 255) / 256) * blocks_of(out) * 128 * 8;
}

std::int64_t expert_base_bytes(std::int64_t experts, std::int64_t out, std::int64_t in) {
  return experts * blocks_of(out) * blocks_of(in) * 4;
}

ExpertScales prepare_scales(const Stream& stream, const Weight& stored, void* scales, void* bases, int* inexact_tiles) {
  CHECK(stored.format != WeightFormat::kBf16 && stored.experts > 0, "prepare_scales: {} of {} experts",
        weight_format_name(stored.format), stored.experts);
  const bool mxfp4 = stored.format == WeightFormat::kMxfp4;
  const std::int64_t in_tiles = mxfp4 ? (stored.in + 255) / 256 : blocks_of(stored.in),
                     out_tiles = blocks_of(stored.out);
  ExpertScales prepared;
  prepared.bases = Tensor(bases, DType::kF32, stream.device(), {stored.experts, out_tiles, in_tiles});
  ExpertPrepare params{};
  if (mxfp4) {
    prepared.scales = Tensor(scales, DType::kU8, stream.device(), {stored.experts, in_tiles, out_tiles * 128, 8});
    params.payload = stored.payload.as<std::uint8_t>();
    params.stored_scales = stored.scales.as<std::uint8_t>();
    params.scales = prepared.scales.as<std::uint8_t>();
  } else {
    params.stored_bases = stored.scales.as<float>();
  }
  params.bases = prepared.bases.as<float>();
  params.inexact_tiles = inexact_tiles;
  params.experts = static_cast<int>(stored.experts);
  params.out_features = static_cast<int>(stored.out);
  params.in = static_cast<int>(stored.in);
  launch_expert_prepare(params, rose::cuda::native_stream(stream));
  return prepared;
}

namespace {

ExpertDecodeShape decode_shape(const ExpertWorkShape& shape) {
  return {.rows_max = std::min(shape.rows_max, kExpertDecodeRowsMax),
          .experts_per_token = shape.experts_per_token,
          .hidden = shape.hidden,
          .intermediate = shape.intermediate};
}

// Chunks of rows one after another: their results do not depend on each other.
void exact(const Stream& stream, const ExpertCall& call) {
  const ExpertDecodeShape shape = decode_shape(call.work.shape);
  const std::int64_t rows = call.x.size(0);
  for (std::int64_t begin = 0; begin < rows; begin += kExpertDecodeRowsMax) {
    const std::int64_t end = std::min<std::int64_t>(rows, begin + kExpertDecodeRowsMax);
    const Routing routing{.experts = call.routing.experts.rows(begin, end),
                          .weights = call.routing.weights.rows(begin, end)};
    const Tensor x = call.x.rows(begin, end), y = call.y.rows(begin, end);
    experts_decode(stream, {.x = x,
                            .routing = routing,
                            .weights = call.weights,
                            .swiglu_limit = call.swiglu_limit,
                            .shape = shape,
                            .work = call.work.memory,
                            .y = y});
  }
}

}  // namespace

std::size_t expert_work_bytes(const ExpertWorkShape& shape) {
  return std::max(WorkLayout(shape).bytes, experts_decode_work_bytes(decode_shape(shape)));
}

// Sort, quantize, both products in FP8, weighted sum.
void experts_rounded(const Stream& stream, const ExpertCall& call, ExpertTiles tiles) {
  const Weight &gate_up = call.weights.gate_up, &down = call.weights.down;
  const int rows = static_cast<int>(call.x.size(0)), k = static_cast<int>(call.routing.experts.size(1));
  if (rows == 0) return;
  const WorkLayout layout(call.work.shape);
  const cudaStream_t native = rose::cuda::native_stream(stream);

  ExpertSort sort{};
  sort.experts = call.routing.experts.as<std::int32_t>();
  sort.weights = call.routing.weights.as<float>();
  sort.rows = rows;
  sort.k = k;
  sort.first_expert = static_cast<int>(call.weights.first_expert);
  sort.experts_held = static_cast<int>(gate_up.experts);
  sort.positions = at<int>(call.work, layout.positions);
  sort.sorted_weights = at<float>(call.work, layout.weights);
  sort.tiles = at<int4>(call.work, layout.tiles);
  sort.tile_count = at<int>(call.work, layout.tile_count);
  sort.tile_rows = tiles == ExpertTiles::kNarrow ? ExpertNarrow::kRows : ExpertWide::kRows;
  sort.largest_first = tiles == ExpertTiles::kWide;
  launch_expert_sort(sort, native);

  const int hidden = static_cast<int>(down.out);
  ExpertQuantize quantize{};
  quantize.x = static_cast<const std::uint16_t*>(call.x.raw());
  quantize.positions = sort.positions;
  quantize.sorted = at<std::uint8_t>(call.work, layout.x);
  quantize.scales = at<float>(call.work, layout.x_scales);
  quantize.rows = rows;
  quantize.k = k;
  quantize.hidden = hidden;
  quantize.positions_stride = layout.positions_stride;
  launch_expert_quantize(quantize, native);

  ExpertProduct first =
      product(gate_up, call.weights.gate_up_scales, at<void>(call.work, layout.x), layout.positions_stride);
  first.x_scales = at<float>(call.work, layout.x_scales);
  first.tiles = sort.tiles;
  first.tile_count = sort.tile_count;
  first.out = at<void>(call.work, layout.activations);
  first.swiglu_limit = call.swiglu_limit;
  launch<ExpertStage::kGateUp>(first, gate_up.format, tiles, stream);

  ExpertProduct second =
      product(down, call.weights.down_scales, at<void>(call.work, layout.activations), layout.positions_stride);
  second.tiles = sort.tiles;
  second.tile_count = sort.tile_count;
  second.sorted_weights = sort.sorted_weights;
  second.out = at<void>(call.work, layout.weighted);
  launch<ExpertStage::kDown>(second, down.format, tiles, stream);

  launch_expert_combine({at<std::uint16_t>(call.work, layout.weighted), sort.positions,
                         static_cast<std::uint16_t*>(call.y.raw()), rows, k, hidden},
                        native);
}

void experts(const Stream& stream, const ExpertCall& call) {
  const std::int64_t rows = call.x.size(0), k = call.routing.experts.size(1);
  CHECK(rows <= call.work.shape.rows_max && k == call.work.shape.experts_per_token && k <= ExpertSort::kTop &&
            call.weights.gate_up.experts <= ExpertSort::kExpertsMax,
        "experts: {} rows of {}, {} experts, in work for {}, {}", rows, k, call.weights.gate_up.experts,
        call.work.shape.rows_max, call.work.shape.experts_per_token);
  if (rows == 0) return;
  if (call.bf16_activations || (rows <= kExactRows && experts_decode_takes(call.weights))) {
    exact(stream, call);
  } else {
    const bool few = rows * k <= call.weights.gate_up.experts * kNarrowMean;
    experts_rounded(stream, call, few ? ExpertTiles::kNarrow : ExpertTiles::kWide);
  }
}

}  // namespace rose::ops::cuda
