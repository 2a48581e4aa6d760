// The passes over edges between two matrix products, one pass each; included by native.c, once per
// type T of the rows with its conversions `from` and `to` and NAME, which appends the type's name.
//
// z [m, h] are products; ps and pd [n, h] what the source and the destination of an edge add to it
// (or NULL). Each function returns whether an end of an edge lies outside of 0 .. n - 1; such edges
// are left out.

static inline void NAME(load)(const T *z, const float *ps, const float *pd, long h, float *row,
                              float *mean, float *rstd) {
    float sum = 0.0f, squares = 0.0f;
    #pragma omp simd reduction(+ : sum)
    for (long j = 0; j < h; j++) {
        float v = from(z[j]) + (ps ? ps[j] + pd[j] : 0.0f);
        row[j] = v;
        sum += v;
    }
    float m = sum / (float)h;
    #pragma omp simd reduction(+ : squares)
    for (long j = 0; j < h; j++) squares += (row[j] - m) * (row[j] - m);
    *mean = m;
    *rstd = 1.0f / sqrtf(squares / (float)h + EPS);
}

// relu(LayerNorm(z + ps[src] + pd[dst]))
int NAME(norm_relu)(const T *z, const float *ps, const float *pd, const int64_t *src,
                    const int64_t *dst, T *out, long m, long h, long n) {
    int bad = 0;
    #pragma omp parallel for schedule(static) reduction(| : bad)
    for (long i = 0; i < m; i++) {
        if (ps && outside(src[i], dst[i], n)) {
            bad = 1;
            continue;
        }
        float row[h], mean, rstd;
        const float *a = ps ? ps + src[i] * h : NULL, *b = ps ? pd + dst[i] * h : NULL;
        NAME(load)(z + i * h, a, b, h, row, &mean, &rstd);
        #pragma omp simd
        for (long j = 0; j < h; j++) {
            float v = (row[j] - mean) * rstd;
            out[i * h + j] = to(v > 0.0f || v != v ? v : 0.0f);
        }
    }
    return bad;
}

// The gradient of the sum that norm_relu normalises.
int NAME(norm_relu_backward)(const T *grad, const T *z, const float *ps, const float *pd,
                             const int64_t *src, const int64_t *dst, T *out, long m, long h,
                             long n) {
    int bad = 0;
    #pragma omp parallel for schedule(static) reduction(| : bad)
    for (long i = 0; i < m; i++) {
        if (ps && outside(src[i], dst[i], n)) {
            bad = 1;
            continue;
        }
        float row[h], g[h], mean, rstd, total = 0.0f, along = 0.0f;
        const float *a = ps ? ps + src[i] * h : NULL, *b = ps ? pd + dst[i] * h : NULL;
        NAME(load)(z + i * h, a, b, h, row, &mean, &rstd);
        #pragma omp simd reduction(+ : total, along)
        for (long j = 0; j < h; j++) {
            float v = (row[j] - mean) * rstd;
            float passed = v > 0.0f ? from(grad[i * h + j]) : 0.0f * v;
            row[j] = v;
            g[j] = passed;
            total += passed;
            along += passed * v;
        }
        total /= (float)h;
        along /= (float)h;
        #pragma omp simd
        for (long j = 0; j < h; j++) out[i * h + j] = to((g[j] - total - row[j] * along) * rstd);
    }
    return bad;
}

// grad + ps[src] + pd[dst] where e > 0
int NAME(relu_backward)(const T *grad, const float *ps, const float *pd, const int64_t *src,
                        const int64_t *dst, const T *e, T *out, long m, long h, long n) {
    int bad = 0;
    #pragma omp parallel for schedule(static) reduction(| : bad)
    for (long i = 0; i < m; i++) {
        if (ps && outside(src[i], dst[i], n)) {
            bad = 1;
            continue;
        }
        const float *a = ps ? ps + src[i] * h : NULL, *b = ps ? pd + dst[i] * h : NULL;
        #pragma omp simd
        for (long j = 0; j < h; j++) {
            float v = from(grad[i * h + j]) + (ps ? a[j] + b[j] : 0.0f);
            out[i * h + j] = to(from(e[i * h + j]) > 0.0f ? v : 0.0f);
        }
    }
    return bad;
}
