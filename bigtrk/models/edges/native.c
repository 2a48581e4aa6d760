// passes.h for rows of float32 and of bfloat16, with the instructions of this processor. Sums and
// statistics are float32.

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
#define UNROLL _Pragma("GCC unroll 16")

// A tile of a product has HEIGHT rows of VECTORS vectors of LANES sums, which with what they read
// fill the registers.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define LANES 16
#define HEIGHT 6
#define VECTORS 4
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define HEIGHT 6
#define VECTORS 2
#else
#define LANES 4
#define HEIGHT 4
#define VECTORS 2
#endif
#define WIDTH (VECTORS * LANES)
typedef float lanes __attribute__((vector_size(4 * LANES)));

// Of a product: terms of a sum; rows that share a panel in a core's first cache; of a product over
// rows those that do, and the columns of its left factor that are one task.
#define TERMS(numbers) (((numbers) + TERM - 1) / TERM)
#define BLOCK (8 * HEIGHT)
#define SPAN 128
#define GROUP 96

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

// A sum over rows adds at most PARTS partial sums, whose number and sizes do not depend on the
// number of threads.
#define PARTS 8
#define ROWS_OF_PART 512
static inline long rows_of_part(long m) {
    long step = max(ROWS_OF_PART, (m + PARTS - 1) / PARTS);
    return (step + ROWS_OF_PART - 1) / ROWS_OF_PART * ROWS_OF_PART;
}
static inline long parts_of(long m) { return (m + rows_of_part(m) - 1) / rows_of_part(m); }

// Returns room for numbers of 4 bytes, aligned as vectors are read.
static void *room(long numbers) {
    void *found = aligned_alloc(64, (4 * numbers + 63) / 64 * 64);
    if (!found) {
        fputs("bigtrk: no memory is left for products of edges\n", stderr);
        abort();
    }
    return found;
}

// total [h] += the sum of the parts, `apart` numbers apart; it overwrites the first part.
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

#define T float
#define NAME(function) function##_f32
#define from(v) (v)
#define to(v) (v)
#define TERM 1
#define UNREAD 0
#include "passes.h"
#undef T
#undef NAME
#undef from
#undef to
#undef TERM
#undef UNREAD

#define T bf16
#define NAME(function) function##_bf16
#define from from_bf16
#define to to_bf16
#ifdef __AVX512BF16__
#define TERM 2
#else
#define TERM 1
#endif
#define UNREAD (TERM == 1)
#include "passes.h"
