// The instruction sets that SIMD files compile for: AVX-512, AVX2, and the portable fallback. The sets between them
// would double the build time for machines that nobody serves from. Included before any Highway header.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
