// passes.h and products.h for rows of float32 and of bfloat16, once per instruction set: the library
// runs on every processor of its architecture, and `instructions` says what this one has. Sums
// and statistics are float32.

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

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
#define UNROLL _Pragma("GCC unroll 16")
#define JOIN(name, type, set) JOIN_(name, type, set)
#define JOIN_(name, type, set) name##_##type##_##set

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

// A sum over rows is that of at most PARTS parts, which are as many and as large on any number of
// threads.
#define PARTS 8
#define ROWS_OF_PART 512
static inline long rows_of_part(long m) {
    long step = max(ROWS_OF_PART, (m + PARTS - 1) / PARTS);
    return (step + ROWS_OF_PART - 1) / ROWS_OF_PART * ROWS_OF_PART;
}
static inline long parts_of(long m) { return (m + rows_of_part(m) - 1) / rows_of_part(m); }

// total [h] += the sum of the parts, which are `apart`; the first one takes that.
INLINE void add_parts(float *total, float *parts, long n_parts, long apart, long h) {
    for (long n = 1; n < n_parts; n++)
        SIMD for (long j = 0; j < h; j++) parts[j] += parts[n * apart + j];
    if (n_parts) SIMD for (long j = 0; j < h; j++) total[j] += parts[j];
}

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

// SET names the instruction set. A tile of a product has HEIGHT rows of VECTORS vectors of LANES
// sums, which with what they read fill the registers.

#define SET baseline
#define LANES 4
#define HEIGHT 4
#define VECTORS 2
#include "sets.h"

#ifdef __x86_64__

// Both GCC and clang compile what stands between the two for a processor with these instructions.
#ifdef __clang__
#define BEGIN(set) _Pragma(TEXT(clang attribute push(__attribute__((target(set))), apply_to = function)))
#define END _Pragma("clang attribute pop")
#define WIDE AVX512
#else
#define BEGIN(set) _Pragma("GCC push_options") _Pragma(TEXT(GCC target(set)))
#define END _Pragma("GCC pop_options")
#define WIDE AVX512 ",prefer-vector-width=512"
#endif
#define AVX2 "avx2,fma"
#define AVX512 AVX2 ",avx512f,avx512bw,avx512dq,avx512vl"

BEGIN(AVX2)
#define SET avx2
#define LANES 8
#define HEIGHT 6
#define VECTORS 2
#include "sets.h"
END

BEGIN(WIDE)
#define SET avx512
#define LANES 16
#define HEIGHT 6
#define VECTORS 4
#include "sets.h"
END

// GCC 8, which some clusters still have, knows no products of bfloat16.
#if defined(__clang__) || __GNUC__ >= 11
#define BF16 1
BEGIN(WIDE ",avx512bf16")
#define SET avx512_bf16
#define LANES 16
#define HEIGHT 6
#define VECTORS 4
#define DOTS
#include "sets.h"
END
#endif

#endif

// The number of instruction sets, of those above and in their order, that this processor has.
long instructions(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 1;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return 2;
#ifdef BF16
    if (__builtin_cpu_supports("avx512bf16")) return 4;
#endif
    return 3;
#else
    return 1;
#endif
}
