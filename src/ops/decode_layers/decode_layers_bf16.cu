#include "ops/decode_layers/decode_layers_sm90.cuh"

namespace rose::ops::cuda {

template void launch_decode_layers<false>(const DecodeLayersParams&, int, cudaStream_t);

}  // namespace rose::ops::cuda
