// The passes over edges, then the matrix products between them; included by native.c once per type T
// of the rows with its conversions `from` and `to` and NAME, which appends the type's name.
//
// z, grad, e, values, out [m, h] are rows of edges. ps and pd [n, h] are node rows, added at the
// source and destination of an edge, or NULL; src and dst [m] are its two nodes, which the caller
// has checked.

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
void NAME(norm_relu)(T *z, const T *ps, const T *pd, const int64_t *src, const int64_t *dst, T *out,
                     float *rstd, long m, long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h];
        NAME(load)(z, ps, pd, i, src, dst, h, row);
        float scale = rstd[i] = normalise(row, h);  // not read again in the loop, which writes z
        SIMD for (long j = 0; j < h; j++) {
            float v = row[j] * scale;
            z[i * h + j] = to(v);
            out[i * h + j] = to(v < 0.0f ? 0.0f : v);
        }
    }
}

// out = the gradient of z + ps[src] + pd[dst], which norm_relu normalises; out may be grad.
void NAME(norm_relu_backward)(const T *grad, const T *normal, const float *rstd, T *out, long m,
                              long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h], passed[h], total = 0.0f, along = 0.0f, scale = rstd[i];
        SIMD_SUM(total, along) for (long j = 0; j < h; j++) {
            float given = from(grad[i * h + j]);  // always read: AVX2 cannot skip 2 bytes
            row[j] = from(normal[i * h + j]);
            passed[j] = row[j] <= 0.0f ? 0.0f : given;
            total += passed[j];
            along += passed[j] * row[j];
        }
        total /= (float)h;
        along /= (float)h;
        SIMD for (long j = 0; j < h; j++)
            out[i * h + j] = to((passed[j] - total - row[j] * along) * scale);
    }
}

// out = grad + ps[src] + pd[dst] where e > 0, else 0; out may be grad.
void NAME(relu_backward)(const T *grad, const T *e, const T *ps, const T *pd, const int64_t *src,
                         const int64_t *dst, T *out, long m, long h) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < m; i++) {
        float row[h];
        NAME(load)(grad, ps, pd, i, src, dst, h, row);
        SIMD for (long j = 0; j < h; j++)
            out[i * h + j] = to(from(e[i * h + j]) > 0.0f ? row[j] : 0.0f);
    }
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

// Products. A term of a sum is the product of TERM = 1 pair of numbers or, where the processor adds
// those of two pairs at once, of 2. Each sum runs over its terms one by one, from the first to the
// last, whatever tile and thread it falls to. Numbers of a left factor that are not read as they are
// (UNREAD) are converted to float32 once for all columns of a tile: one by one they cost a third more.

#if TERM == 2
typedef uint32_t NAME(term);
typedef bf16 NAME(number);
#else
typedef float NAME(term), NAME(number);
#endif

// Puts one term of `columns` columns in a row. numbers: how many of a sum are left at `first`;
// of_number, of_column: how far they are apart.
INLINE void NAME(pack)(NAME(term) *row, const T *first, long numbers, long of_number,
                       long of_column, long columns) {
#if TERM == 2
    if (numbers > 1) {
        SIMD for (long j = 0; j < columns; j++) {
            const bf16 *at = first + j * of_column;
            row[j] = at[0] | (uint32_t)at[of_number] << 16;
        }
        return;
    }
    SIMD for (long j = 0; j < columns; j++) row[j] = first[j * of_column];
#else
    (void)numbers, (void)of_number;
    SIMD for (long j = 0; j < columns; j++) row[j] = from(first[j * of_column]);
#endif
}

// sums += left @ a panel, for `rows` rows and `vectors` vectors of columns, which are constants.
INLINE void NAME(add_term)(const NAME(number) *left, long of_row, const NAME(term) *right,
                           long rows, long vectors, int numbers, lanes sums[HEIGHT][VECTORS]) {
    lanes of_columns[VECTORS];
    UNROLL for (long v = 0; v < vectors; v++) memcpy(&of_columns[v], right + v * LANES, 4 * LANES);
    UNROLL for (long r = 0; r < rows; r++) {
#if TERM == 2
        uint32_t both = left[r * of_row];
        if (numbers == 2) memcpy(&both, left + r * of_row, 4);
        __m512bh of_row_both = (__m512bh)_mm512_set1_epi32((int)both);
        UNROLL for (long v = 0; v < vectors; v++)
            sums[r][v] = _mm512_dpbf16_ps(sums[r][v], of_row_both, (__m512bh)of_columns[v]);
#else
        (void)numbers;
        float one = left[r * of_row];
        UNROLL for (long v = 0; v < vectors; v++) sums[r][v] += one * of_columns[v];
#endif
    }
}

INLINE void NAME(add_terms)(const NAME(number) *left, long of_row, long of_term, long numbers,
                            const NAME(term) *panel, long rows, long vectors,
                            lanes sums[HEIGHT][VECTORS]) {
    long t = 0;
    for (; t < numbers / TERM; t++)
        NAME(add_term)(left + t * of_term, of_row, panel + t * WIDTH, rows, vectors, TERM, sums);
    if (numbers % TERM)
        NAME(add_term)(left + t * of_term, of_row, panel + t * WIDTH, rows, vectors, 1, sums);
}

// sums += `rows` rows of a left factor @ a panel.
INLINE void NAME(add_rows)(const T *left, long numbers, const NAME(term) *panel, long rows,
                           long vectors, lanes sums[HEIGHT][VECTORS]) {
#if UNREAD
    float read[HEIGHT * SPAN];
    for (long k = 0; k < numbers; k += SPAN) {
        long some = min(SPAN, numbers - k);
        for (long r = 0; r < rows; r++)
            SIMD for (long j = 0; j < some; j++)
                read[r * SPAN + j] = from(left[r * numbers + k + j]);
        NAME(add_terms)(read, SPAN, 1, some, panel + k * WIDTH, rows, vectors, sums);
    }
#else
    NAME(add_terms)(left, numbers, TERM, numbers, panel, rows, vectors, sums);
#endif
}

// out [m, h] = the sum of rows[i] [m, numbers[i]] @ weights[i] [numbers[i], h], and bias [h] or NULL.
// The weights are read by their strides, those of rows and of columns in turn.
typedef struct {
    const T *const *rows, *const *weights, *bias;
    const long *numbers, *strides;
    long factors, m, h, terms;  // terms: of all factors
    NAME(term) *panels;         // the weights, WIDTH columns after WIDTH columns
    T *out;
} NAME(product);

// Packs term t of a panel.
INLINE void NAME(pack_term)(const NAME(product) *p, long panel, long t) {
    NAME(term) *row = p->panels + (panel * p->terms + t) * WIDTH;
    long i = 0, j = panel * WIDTH;
    for (; t >= TERMS(p->numbers[i]); i++) t -= TERMS(p->numbers[i]);
    long of_row = p->strides[2 * i], of_column = p->strides[2 * i + 1];
    for (long k = p->h - j; k < WIDTH; k++) row[k] = 0;
    const T *first = p->weights[i] + TERM * t * of_row + j * of_column;
    NAME(pack)(row, first, p->numbers[i] - TERM * t, of_row, of_column, min(WIDTH, p->h - j));
}

INLINE void NAME(multiply_tile)(const NAME(product) *p, long row, long panel, long rows,
                                long vectors) {
    long j = panel * WIDTH, columns = min(vectors * LANES, p->h - j);
    const NAME(term) *right = p->panels + panel * p->terms * WIDTH;
    float made[WIDTH] = {0};
    if (p->bias) for (long k = 0; k < columns; k++) made[k] = from(p->bias[j + k]);
    lanes sums[HEIGHT][VECTORS];
    UNROLL for (long r = 0; r < rows; r++)
        UNROLL for (long v = 0; v < vectors; v++) memcpy(&sums[r][v], made + v * LANES, 4 * LANES);
    for (long i = 0; i < p->factors; i++) {
        long numbers = p->numbers[i];
        const T *left = p->rows[i] + row * numbers;
        NAME(add_rows)(left, numbers, right, rows, vectors, sums);
        right += TERMS(numbers) * WIDTH;
    }
    UNROLL for (long r = 0; r < rows; r++) {
        UNROLL for (long v = 0; v < vectors; v++) memcpy(made + v * LANES, &sums[r][v], 4 * LANES);
        T *out = p->out + (row + r) * p->h + j;
        if (columns == WIDTH) {
            SIMD for (long k = 0; k < WIDTH; k++) out[k] = to(made[k]);
        } else {
            SIMD for (long k = 0; k < columns; k++) out[k] = to(made[k]);
        }
    }
}

INLINE void NAME(multiply_block)(const NAME(product) *p, long start) {
    long stop = min(start + BLOCK, p->m);
    for (long panel = 0; panel * WIDTH < p->h; panel++) {
        int narrow = p->h - panel * WIDTH <= LANES;
        long i = start;
        for (; i + HEIGHT <= stop; i += HEIGHT)
            if (narrow) NAME(multiply_tile)(p, i, panel, HEIGHT, 1);
            else NAME(multiply_tile)(p, i, panel, HEIGHT, VECTORS);
        for (; i < stop; i++) NAME(multiply_tile)(p, i, panel, 1, VECTORS);
    }
}

void NAME(multiply)(const T *const *rows, const T *const *weights, const long *numbers,
                    const long *strides, long factors, const T *bias, T *out, long m, long h) {
    NAME(product) p = {rows, weights, bias, numbers, strides, factors, m, h, 0, NULL, out};
    for (long i = 0; i < factors; i++) p.terms += TERMS(numbers[i]);
    long n_terms = (h + WIDTH - 1) / WIDTH * p.terms;
    p.panels = room(n_terms * WIDTH);
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (long i = 0; i < n_terms; i++) NAME(pack_term)(&p, i / p.terms, i % p.terms);
        #pragma omp for schedule(static)
        for (long i = 0; i < m; i += BLOCK) NAME(multiply_block)(&p, i);
    }
    free(p.panels);
}

// part += left^T @ a panel, for `rows` rows and WIDTH columns of a part whose rows are `width` wide.
INLINE void NAME(add_tile)(const NAME(number) *left, long of_row, long of_term, long numbers,
                           const NAME(term) *panel, float *part, long width, long rows) {
    lanes sums[HEIGHT][VECTORS];
    UNROLL for (long r = 0; r < rows; r++)
        UNROLL for (long v = 0; v < VECTORS; v++)
            memcpy(&sums[r][v], part + r * width + v * LANES, 4 * LANES);
    NAME(add_terms)(left, of_row, of_term, numbers, panel, rows, VECTORS, sums);
    UNROLL for (long r = 0; r < rows; r++)
        UNROLL for (long v = 0; v < VECTORS; v++)
            memcpy(part + r * width + v * LANES, &sums[r][v], 4 * LANES);
}

// part [columns, width] += `columns` columns of a^T @ b, of `rows` rows of a [., h1] and b [., h2].
INLINE void NAME(add_span)(const T *a, const T *b, float *part, long rows, long columns, long h1,
                           long h2, long width) {
    NAME(term) panel[TERMS(SPAN) * WIDTH];
#if TERM == 2 || UNREAD
    NAME(term) left[TERMS(SPAN) * GROUP];
    for (long t = 0; t < TERMS(rows); t++)
        NAME(pack)(left + t * GROUP, a + TERM * t * h1, rows - TERM * t, h1, 1, columns);
    const NAME(number) *first = (const NAME(number) *)left;
    long of_row = TERM, of_term = TERM * GROUP, numbers = TERM * TERMS(rows);
#else
    const T *first = a;
    long of_row = 1, of_term = h1, numbers = rows;
#endif
    for (long j = 0; j < h2; j += WIDTH) {
        for (long t = 0; t < TERMS(rows); t++) {
            const T *at = b + TERM * t * h2 + j;
            NAME(term) *row = panel + t * WIDTH;
            for (long k = h2 - j; k < WIDTH; k++) row[k] = 0;
            if (j + WIDTH <= h2) NAME(pack)(row, at, rows - TERM * t, h2, 1, WIDTH);
            else NAME(pack)(row, at, rows - TERM * t, h2, 1, h2 - j);
        }
        float *tile = part + j;
        long i = 0;
        for (; i + HEIGHT <= columns; i += HEIGHT)
            NAME(add_tile)(first + i * of_row, of_row, of_term, numbers, panel, tile + i * width,
                           width, HEIGHT);
        for (; i < columns; i++)
            NAME(add_tile)(first + i * of_row, of_row, of_term, numbers, panel, tile + i * width,
                           width, 1);
    }
}

// total [h1, h2] += a^T @ b, of a [m, h1] and b [m, h2]; the rows of total are `of_total` apart.
void NAME(add_product)(const T *a, const T *b, float *total, long m, long h1, long h2,
                       long of_total) {
    long width = (h2 + WIDTH - 1) / WIDTH * WIDTH, n_parts = parts_of(m), step = rows_of_part(m);
    long groups = (h1 + GROUP - 1) / GROUP;
    float *parts = room(n_parts * h1 * width);
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (long task = 0; task < n_parts * groups; task++) {
            long n = task / groups, i = task % groups * GROUP, columns = min(GROUP, h1 - i);
            long stop = min((n + 1) * step, m);
            float *part = parts + (n * h1 + i) * width;
            memset(part, 0, sizeof(float) * columns * width);
            for (long row = n * step; row < stop; row += SPAN)
                NAME(add_span)(a + row * h1 + i, b + row * h2, part, min(SPAN, stop - row), columns,
                               h1, h2, width);
        }
        #pragma omp for schedule(static)
        for (long i = 0; i < h1; i++)
            add_parts(total + i * of_total, parts + i * width, n_parts, h1 * width, h2);
    }
    free(parts);
}

// total [h] += the sum of values [m, h].
void NAME(add_sum)(const T *values, float *total, long m, long h) {
    long n_parts = parts_of(m), step = rows_of_part(m);
    float *parts = room(n_parts * h);
    #pragma omp parallel for schedule(static)
    for (long n = 0; n < n_parts; n++) {
        float *part = parts + n * h;
        memset(part, 0, sizeof(float) * h);
        for (long i = n * step; i < min((n + 1) * step, m); i++)
            SIMD for (long j = 0; j < h; j++) part[j] += from(values[i * h + j]);
    }
    add_parts(total, parts, n_parts, h, h);
    free(parts);
}
