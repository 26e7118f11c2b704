#include "ops/experts/experts_products_sm90.cuh"

namespace rose::ops::cuda {

template void launch_expert_product<ExpertStage::kDown, ExpertForm::kFp8, ExpertWide>(const ExpertProduct&, int,
                                                                                      cudaStream_t);
template void launch_expert_product<ExpertStage::kDown, ExpertForm::kFp8, ExpertNarrow>(const ExpertProduct&, int,
                                                                                        cudaStream_t);

}  // namespace rose::ops::cuda
