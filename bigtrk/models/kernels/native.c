// passes.h for rows of float32 and of bfloat16; sums and statistics are float32.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5f  // of torch's layer_norm

typedef uint16_t bf16;

static inline int outside(int64_t source, int64_t destination, long n) {
    return (uint64_t)source >= (uint64_t)n || (uint64_t)destination >= (uint64_t)n;
}

static inline float from_bf16(bf16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

// To nearest, ties to even; NaN stays NaN.
static inline bf16 to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return value != value ? 0x7fc0u : (bf16)rounded;
}

#define T float
#define NAME(f) f##_f32
#define from(v) (v)
#define to(v) (v)
#include "passes.h"
#undef T
#undef NAME
#undef from
#undef to

#define T bf16
#define NAME(f) f##_bf16
#define from from_bf16
#define to to_bf16
#include "passes.h"
