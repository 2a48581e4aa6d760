// The passes over edges between two matrix products; included by native.c, once per type T of the
// rows with its conversions `from` and `to` and NAME, which appends the type's name.
//
// z, grad, e, values, out [m, h] are rows of edges. ps and pd [n, h] are what the source and the
// destination of an edge add to it, or NULL; src and dst [m] are its ends, which the caller has
// checked.

INLINE void NAME(load)(const T *z, const T *ps, const T *pd, long i, const int64_t *src,
                       const int64_t *dst, long h, float *row) {
    const T *own = z + i * h;
    if (ps) {
        const T *a = ps + src[i] * h, *b = pd + dst[i] * h;
        SIMD for (long j = 0; j < h; j++) row[j] = from(own[j]) + (from(a[j]) + from(b[j]));
    } else {
        SIMD for (long j = 0; j < h; j++) row[j] = from(own[j]);
    }
}

// normal = LayerNorm(z + ps[src] + pd[dst]), which takes the place of z; out = relu(normal).
INLINE void NAME(norm_relu_rows)(T *z, const T *ps, const T *pd, const int64_t *src,
                                 const int64_t *dst, T *out, float *rstd, long m, long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h];
        NAME(load)(z, ps, pd, i, src, dst, h, row);
        rstd[i] = normalise(row, h);
        SIMD for (long j = 0; j < h; j++) {
            float v = row[j] * rstd[i];
            z[i * h + j] = to(v);
            out[i * h + j] = to(v < 0.0f ? 0.0f : v);
        }
    }
}

// The gradient of the sum that norm_relu normalises; out may be grad.
INLINE void NAME(norm_relu_backward_rows)(const T *grad, const T *normal, const float *rstd, T *out,
                                          long m, long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h], passed[h], total = 0.0f, along = 0.0f;
        SIMD_SUM(total, along) for (long j = 0; j < h; j++) {
            row[j] = from(normal[i * h + j]);
            passed[j] = row[j] <= 0.0f ? 0.0f : from(grad[i * h + j]);
            total += passed[j];
            along += passed[j] * row[j];
        }
        total /= (float)h;
        along /= (float)h;
        SIMD for (long j = 0; j < h; j++)
            out[i * h + j] = to((passed[j] - total - row[j] * along) * rstd[i]);
    }
}

// grad + ps[src] + pd[dst] where e > 0; out may be grad.
INLINE void NAME(relu_backward_rows)(const T *grad, const T *e, const T *ps, const T *pd,
                                     const int64_t *src, const int64_t *dst, T *out, long m,
                                     long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h];
        NAME(load)(grad, ps, pd, i, src, dst, h, row);
        SIMD for (long j = 0; j < h; j++)
            out[i * h + j] = to(from(e[i * h + j]) > 0.0f ? row[j] : 0.0f);
    }
}

// The usual widths are known to the compiler, which then keeps a row in registers.
void NAME(norm_relu)(T *z, const T *ps, const T *pd, const int64_t *src, const int64_t *dst, T *out,
                     float *rstd, long m, long h) {
    FOR_EACH_WIDTH(NAME(norm_relu_rows), z, ps, pd, src, dst, out, rstd, m)
}

void NAME(norm_relu_backward)(const T *grad, const T *normal, const float *rstd, T *out, long m,
                              long h) {
    FOR_EACH_WIDTH(NAME(norm_relu_backward_rows), grad, normal, rstd, out, m)
}

void NAME(relu_backward)(const T *grad, const T *e, const T *ps, const T *pd, const int64_t *src,
                         const int64_t *dst, T *out, long m, long h) {
    FOR_EACH_WIDTH(NAME(relu_backward_rows), grad, e, ps, pd, src, dst, out, m)
}

// of_source[src] += values, of_destination[dst] += values.
//
// Threads share columns and sides, not edges: no two write to one place, and each sum has one order.
void NAME(add_to_nodes)(const T *values, const int64_t *src, const int64_t *dst, float *of_source,
                        float *of_destination, long m, long h) {
    long blocks = max(1, min((omp_get_max_threads() + 1) / 2, h / 16));
    #pragma omp parallel for schedule(static)
    for (long task = 0; task < 2 * blocks; task++) {
        long start = h * (task / 2) / blocks, stop = h * (task / 2 + 1) / blocks;
        float *sums = task % 2 ? of_source : of_destination;
        const int64_t *end = task % 2 ? src : dst;
        for (long i = 0; i < m; i++) {
            float *sum = sums + end[i] * h;
            SIMD for (long j = start; j < stop; j++) sum[j] += from(values[i * h + j]);
        }
    }
}

// total += values
void NAME(add_rows)(const T *values, float *total, long m, long h) {
    #pragma omp parallel for simd schedule(static)
    for (long i = 0; i < m * h; i++) total[i] += from(values[i]);
}
