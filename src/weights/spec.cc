#include "weights/spec.h"

#include "base/check.h"
#include "base/result.h"
#include "weights/checked.h"

namespace rose {

std::int64_t WeightSlice::out() const {
  std::int64_t sum = 0;
  for (const ShardRange& range : rows) sum += range.size();
  return sum;
}

WeightSlice slice_of(const WeightSpec& spec, const ParallelPlan& plan, int rank) {
  CHECK(rank >= 0 && rank < plan.ranks(), "rank {} of {}", rank, plan.describe());
  CHECK(plan.ep >= 1 && plan.ranks() % plan.ep == 0, "{}", plan.describe());
  const int tp_rank = rank % plan.tp;
  // Ranks that share experts are neighbours: with ep = 2 of 4 ranks, 0 and 1 hold the first half of the experts.
  const int sharers = plan.ranks() / plan.ep;
  const int place = rank % sharers;

  WeightSlice slice;
  slice.experts = {0, spec.experts};
  slice.columns = {0, spec.in};
  slice.holds_bias = spec.bias;
  const bool expert_shard = spec.shard == Shard::kExpertRows || spec.shard == Shard::kExpertColumns;
  if (expert_shard) slice.experts = shard_range(spec.experts, plan.ep, rank / sharers);
  if (spec.shard == Shard::kColumns) {
    slice.columns = shard_range(spec.in, plan.tp, tp_rank, kMxfp4Group);
    slice.holds_bias = spec.bias && tp_rank == 0;
  }
  if (spec.shard == Shard::kExpertColumns) {
    slice.columns = shard_range(spec.in, sharers, place, kMxfp4Group);
    slice.holds_bias = spec.bias && place == 0;
  }
  for (const SourcePart& part : spec.parts) {
    ShardRange rows{0, part.rows};
    if (spec.shard == Shard::kRows) rows = shard_range(part.rows, plan.tp, tp_rank);
    // Gate and up interleave, so that 32 columns of the down matrix belong to 64 rows of gate_up.
    if (spec.shard == Shard::kExpertRows) rows = shard_range(part.rows, sharers, place, 2 * kMxfp4Group);
    slice.rows.push_back(rows);
  }
  if (slice.columns.size() == 0 || slice.out() == 0 || (spec.experts > 0 && slice.experts.size() == 0)) {
    throw StartError(fmt::format("parallel plan {} leaves rank {} nothing of {} [{}, {}, {}]: use fewer ranks",
                                 plan.describe(), rank, spec.name, spec.experts, spec.out, spec.in));
  }
  return slice;
}

WeightFormat WeightFormats::of(const WeightSpec& spec) const {
  if (spec.kind == WeightKind::kExperts) return experts;
  return spec.kind == WeightKind::kMatrix && spec.dense ? dense : WeightFormat::kBf16;
}

std::size_t slice_bytes(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats) {
  const WeightSizes sizes = weight_sizes(formats.of(spec), slice.experts.size(), slice.out(), slice.columns.size());
  const std::uint64_t bias =
      slice.holds_bias ? weight_sizes(WeightFormat::kBf16, slice.experts.size(), slice.out(), 1).payload : 0;
  // weight_sizes bounds each term by 2^62.
  return Arena::aligned(sizes.payload) + Arena::aligned(sizes.scales) + Arena::aligned(bias);
}

Weight weight_over(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats, Device device,
                   const WeightMemory& memory) {
  Weight weight;
  weight.format = formats.of(spec);
  weight.experts = slice.experts.size();
  weight.out = slice.out();
  weight.in = slice.columns.size();
  // Shapes with the leading [experts] where there is one.
  const auto shaped = [&](void* pointer, DType dtype, std::int64_t rows, std::int64_t columns) -> Tensor {
    if (spec.kind == WeightKind::kVector) return {pointer, dtype, device, {rows}};
    if (weight.experts == 0) return {pointer, dtype, device, {rows, columns}};
    return {pointer, dtype, device, {weight.experts, rows, columns}};
  };
  const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
  switch (weight.format) {
    case WeightFormat::kBf16:
      weight.payload = shaped(memory.payload, DType::kBf16, weight.out, weight.in);
      break;
    case WeightFormat::kFp8:
      weight.payload = shaped(memory.payload, DType::kF8E4M3, weight.out, weight.in);
      weight.scales = shaped(memory.scales, DType::kF32, tiles(weight.out), tiles(weight.in));
      break;
    case WeightFormat::kMxfp4:
      weight.payload = shaped(memory.payload, DType::kU8, weight.out, weight.in / 2);
      weight.scales = shaped(memory.scales, DType::kU8, weight.out, weight.in / kMxfp4Group);
      break;
  }
  if (!slice.holds_bias) return weight;
  weight.bias = weight.experts == 0 ? Tensor(memory.bias, DType::kBf16, device, {weight.out})
                                    : Tensor(memory.bias, DType::kBf16, device, {weight.experts, weight.out});
  return weight;
}

Weight allocate_weight(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats, Arena& arena) {
  const std::int64_t experts = slice.experts.size(), out = slice.out();
  const WeightSizes sizes = weight_sizes(formats.of(spec), experts, out, slice.columns.size());
  WeightMemory memory;
  memory.payload = arena.take(spec.name, sizes.payload);
  if (sizes.scales > 0) memory.scales = arena.take(spec.name + ".scales", sizes.scales);
  if (slice.holds_bias) {
    memory.bias = arena.take(spec.name + ".bias", weight_sizes(WeightFormat::kBf16, experts, out, 1).payload);
  }
  return weight_over(spec, slice, formats, arena.device(), memory);
}

}  // namespace rose
