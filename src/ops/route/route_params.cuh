// What the launcher hands to the routing kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rose::ops::cuda {

struct RouteLogits {
  const std::uint16_t* x;       // [rows, in] bf16, rows x_stride elements apart, 16-byte aligned
  const std::uint16_t* weight;  // [experts, in] bf16, dense, 16-byte aligned
  const std::uint16_t* bias;    // [experts] bf16, or null
  float* logits;                // [rows, experts], dense
  long x_stride;
  int rows, experts, in;  // in a multiple of 8
};

// Many rows.
void launch_route_logits(const RouteLogits& params, int multiprocessors, cudaStream_t stream);

struct RouteChoice {
  static constexpr int kExpertsMax = 256;  // ptx::kChoices
  static constexpr int kChosenMax = 32;

  const float* logits;   // [rows, experts], dense
  std::int32_t* chosen;  // [rows, k], rows chosen_stride apart
  float* weights;        // [rows, k], rows weights_stride apart
  long chosen_stride, weights_stride;
  int rows, experts, k;
};

// Logits and choice in one kernel, for few rows or few experts; the logits are written beside.
struct RouteFewShape {
  static constexpr int kFewExperts = 64;  // of them several blocks fit on a multiprocessor
  static constexpr int kParts = 8;        // of `in`; blocks of a cluster
  static constexpr int kStepWidth = 64;
  static constexpr int kThreads = 256;
  static constexpr int kSharedMax = 227 * 1024 - 64;  // a barrier lies beside

  static constexpr int steps(int in) { return (in + kParts * kStepWidth - 1) / (kParts * kStepWidth); }
  // Rows in shared memory lie an odd number of half lines apart: eight of them fall into different banks.
  static constexpr int pitch(int in) { return steps(in) * kStepWidth * 2 + 64; }
  // Beyond, other kernels are faster.
  static constexpr int rows_max(int experts) { return experts <= kFewExperts ? 1024 : 128; }
  // Of eight rows. With many experts, clusters of 8 rows would come in a second wave.
  static constexpr int column_blocks(int rows, int experts) {
    return rows <= 32 || (rows <= 128 && experts <= kFewExperts) ? 1 : 2;
  }
  static constexpr int partial_bytes(int column_blocks) {
    return column_blocks * kParts * RouteChoice::kExpertsMax * static_cast<int>(sizeof(float));
  }
  static constexpr long shared_bytes(int rows, int experts, int in) {
    const int blocks = column_blocks(rows, experts);
    return partial_bytes(blocks) + static_cast<long>((experts + 15) / 16 * 16 + 8 * blocks) * pitch(in);
  }
};
void launch_route_few(const RouteLogits& logits, const RouteChoice& choice, cudaStream_t stream);

void launch_route_choice(const RouteChoice& params, cudaStream_t stream);

}  // namespace rose::ops::cuda
