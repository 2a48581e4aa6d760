// Trees of hits that edges unite: hit_tree.py says what they are, and computes the same.

#include <stdint.h>

// In a tree nodes 0 to n_hits - 1 are the hits; unions follow in the order they are made.

typedef struct {
    const double *position;
    const int64_t *module;
    double reach;
} Hits;

// A hit of the group stands for it; `up` leads there.
static int64_t group_of(int64_t *up, int64_t hit) {
    while (up[hit] != hit) hit = up[hit] = up[up[hit]];
    return hit;
}

static int exclude(const Hits *hits, int64_t i, int64_t j) {
    const int64_t *a = hits->module + 3 * i, *b = hits->module + 3 * j;
    if (a[0] != b[0] || a[1] != b[1]) return 0;
    if (a[2] == b[2]) return 1;
    const double *p = hits->position + 3 * i, *q = hits->position + 3 * j;
    double x = p[0] - q[0], y = p[1] - q[1], z = p[2] - q[2];
    return x * x + y * y + z * z > hits->reach * hits->reach;
}

// The hits of a group are a ring by `next`.
static int may_unite(const Hits *hits, const int64_t *next, int64_t a, int64_t b) {
    if (!hits->module) return 1;
    int64_t i = a;
    do {
        int64_t j = b;
        do {
            if (exclude(hits, i, j)) return 0;
            j = next[j];
        } while (j != b);
        i = next[i];
    } while (i != a);
    return 1;
}

// Returns the number of unions, each with its two children and its edge. `up`, `next` and `node`
// are scratch, [n_hits].
long unite(const int64_t *source, const int64_t *destination, long n_edges, const double *position,
           const int64_t *module, double reach, long n_hits, int64_t *up, int64_t *next,
           int64_t *node, int64_t *child, int64_t *edge) {
    Hits hits = {position, module, reach};
    long n = 0;
    for (long i = 0; i < n_hits; i++) up[i] = next[i] = node[i] = i;
    for (long e = 0; e < n_edges; e++) {
        int64_t a = group_of(up, source[e]), b = group_of(up, destination[e]);
        if (a == b || !may_unite(&hits, next, a, b)) continue;
        child[2 * n] = node[a];
        child[2 * n + 1] = node[b];
        edge[n] = e;
        int64_t after = next[a];
        next[a] = next[b];
        next[b] = after;
        up[b] = a;
        node[a] = n_hits + n++;
    }
    return n;
}
