// passes.h and products.h with one instruction set; included by native.c, which says SET, LANES,
// HEIGHT and VECTORS, and DOTS where it has products of bfloat16.

#define WIDTH (VECTORS * LANES)
#define lanes JOIN(lanes, of, SET)
typedef float lanes __attribute__((vector_size(4 * LANES)));

#define T float
#define NAME(f) JOIN(f, f32, SET)
#define from(v) (v)
#define to(v) (v)
#define TERM 1
#include "passes.h"
#include "products.h"
#undef T
#undef NAME
#undef from
#undef to
#undef TERM

#define T bf16
#define NAME(f) JOIN(f, bf16, SET)
#define from from_bf16
#define to to_bf16
#ifdef DOTS
#define TERM 2
#else
#define TERM 1
#endif
#include "passes.h"
#include "products.h"
#undef T
#undef NAME
#undef from
#undef to
#undef TERM

#undef lanes
#undef WIDTH
#undef SET
#undef LANES
#undef HEIGHT
#undef VECTORS
#undef DOTS
