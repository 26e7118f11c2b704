// The one description of a weight: converter, loader, sharding, memory report, random init and tests all visit the same
// list of these (Model::visit_specs).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan.h"
#include "tensor/arena.h"
#include "weights/format.h"

namespace rose {

enum class WeightKind : std::uint8_t {
  kVector,   // bf16 [out]: norms, sinks
  kMatrix,   // [out, in], bf16 as published; some may be fp8 in memory
  kExperts,  // [experts, out, in], mxfp4 as published; the only kind that takes every format
};

// A run of `out` rows that the published checkpoint keeps as its own tensor. Each part is cut over tp by itself, so
// that every rank holds its own heads of q, of k and of v.
struct SourcePart {
  std::string tensor;  // "model.layers.3.self_attn.q_proj": ".weight", ".bias" are appended
  std::int64_t rows = 0;
};

struct WeightSpec {
  std::string name;  // "layers.3.attention.qkv"
  WeightKind kind = WeightKind::kMatrix;
  std::int64_t experts = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;  // 1 for vectors
  bool bias = false;
  bool dense = false;  // kMatrix: in WeightFormats::dense in memory; other matrices stay bf16
  Shard shard = Shard::kCopy;
  std::vector<SourcePart> parts;  // rows sum to out
};

using SpecVisitor = std::function<void(const WeightSpec&)>;

// Shape of the part of `spec` that `rank` holds: experts, out, in of its Weight.
//   kRows     every part's rows cut evenly over tp
//   kColumns  `in` cut over tp in units of 32; the bias lives on tp rank 0, other ranks hold none
//   kExpertRows, kExpertColumns  experts cut evenly over ep; where ep < tp, the tp / ep ranks that share experts also
//   cut the intermediate
//             width in units of 32: rows of gate_up (units of 64: gate and up interleave), columns of down (bias on the
//             first)
struct WeightSlice {
  ShardRange experts;
  std::vector<ShardRange> rows;  // one a part, within the part
  ShardRange columns;
  bool holds_bias = false;

  std::int64_t out() const;
};
WeightSlice slice_of(const WeightSpec& spec, const ParallelPlan& plan, int rank);

// What weights take in memory. The experts' format alone: everything else is bf16, as files and sources have it.
struct WeightFormats {
  WeightFormats(WeightFormat experts_, WeightFormat dense_ = WeightFormat::kBf16) : experts(experts_), dense(dense_) {}

  WeightFormat of(const WeightSpec& spec) const;

  WeightFormat experts;
  WeightFormat dense;  // of the matrices whose spec says so: bf16, or fp8
};

// Bytes of the slice in memory, every tensor aligned as Arena aligns it.
std::size_t slice_bytes(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats);

// The slice in memory that is there: scales where the format has them, bias where the slice holds it, else null.
struct WeightMemory {
  void* payload = nullptr;
  void* scales = nullptr;
  void* bias = nullptr;
};
Weight weight_over(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats, Device device,
                   const WeightMemory& memory);

// The same in slice_bytes of the arena.
Weight allocate_weight(const WeightSpec& spec, const WeightSlice& slice, const WeightFormats& formats, Arena& arena);

}  // namespace rose
