// passes.h for rows of float32 and of bfloat16; sums and statistics are float32.

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define EPS 1e-5f  // that of torch's layer_norm

typedef uint16_t bf16;

#define INLINE static inline __attribute__((always_inline))
#define SIMD _Pragma("omp simd")
#define SIMD_SUM(...) _Pragma(TEXT(omp simd reduction(+ : __VA_ARGS__)))
#define TEXT(...) #__VA_ARGS__
#define FOR_EACH_WIDTH(rows, ...)                                                                  \
    if (h == 64) rows(__VA_ARGS__, 64);                                                            \
    else if (h == 128) rows(__VA_ARGS__, 128);                                                     \
    else rows(__VA_ARGS__, h);

INLINE float from_bf16(bf16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

// Rounds to nearest, ties to even. NaN stays NaN if arithmetic made it or it came from bfloat16.
INLINE bf16 to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline long min(long a, long b) { return a < b ? a : b; }
static inline long max(long a, long b) { return a > b ? a : b; }

// Centres the row; returns the factor that normalises it.
INLINE float normalise(float *row, long h) {
    float sum = 0.0f, squares = 0.0f;
    SIMD_SUM(sum) for (long j = 0; j < h; j++) sum += row[j];
    float mean = sum / (float)h;
    SIMD_SUM(squares) for (long j = 0; j < h; j++) {
        row[j] -= mean;
        squares += row[j] * row[j];
    }
    return 1.0f / sqrtf(squares / (float)h + EPS);
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
