#pragma once

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// The instructions that code of this folder may use. Files of the richer instruction sets
// (avx512_bf16, amx) define MOESAIC_RICH_AVX512 before they include anything from here, those that
// need nothing beyond VNNI define MOESAIC_AVX512_VNNI.

#if defined(MOESAIC_RICH_AVX512)
#define MOESAIC_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,avx512vnni,gfni"
#elif defined(MOESAIC_AVX512_VNNI)
#define MOESAIC_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#else
#define MOESAIC_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#endif
