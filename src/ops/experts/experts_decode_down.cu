#include "ops/experts/experts_decode_sm90.cuh"

namespace rose::ops::cuda {

void launch_expert_decode_down(const ExpertDecode& params, int multiprocessors, cudaStream_t stream) {
  launch_decode<DecodeStage::kDown>(params, multiprocessors, stream);
}

}  // namespace rose::ops::cuda
