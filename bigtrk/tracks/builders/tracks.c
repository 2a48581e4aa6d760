// The longest paths through a graph without cycles, each over what those before it left unused, and
// trees of hits that edges unite: paths.py and hit_tree.py say what they are, and compute the same.

#include <stdint.h>

#define NONE (-1)
#define UNUSED (-2)

// Nodes are in topological order; the edges out of node v, the best first, are rows first[v] to
// first[v + 1] - 1. `path` is UNUSED, NONE or a number.
typedef struct {
    const int64_t *first, *target;
    const double *score;
    double best, others;
    int64_t *path;
} Graph;

// By node, from the start `seen`: the next edge to look at, and the longest path so far, its number
// of nodes and its second node. `stack` is the path that is looked at.
typedef struct {
    int64_t *seen, *edge, *length, *following, *stack;
} Search;

static void enter(const Graph *graph, Search *search, int64_t node, int64_t start) {
    search->seen[node] = start;
    search->edge[node] = graph->first[node];
    search->length[node] = 1;
    search->following[node] = NONE;
}

static void measure(const Graph *graph, Search *search, int64_t start) {
    int64_t depth = 0;
    enter(graph, search, start, start);
    search->stack[depth++] = start;
    while (depth) {
        int64_t node = search->stack[depth - 1], edge = search->edge[node];
        if (edge == graph->first[node + 1]) {
            depth--;
            continue;
        }
        int64_t next = graph->target[edge];
        double lowest = search->following[node] == NONE ? graph->best : graph->others;
        if (graph->path[next] != UNUSED) {
            search->edge[node]++;
        } else if (graph->score[edge] <= lowest) {
            search->edge[node] = graph->first[node + 1];  // those after it are no better
        } else if (search->seen[next] != start) {
            enter(graph, search, next, start);
            search->stack[depth++] = next;  // and come back to the same edge
        } else {
            if (search->length[next] >= search->length[node]) {
                search->length[node] = search->length[next] + 1;
                search->following[node] = next;
            }
            search->edge[node]++;
        }
    }
}

// `scratch` has 5 * n_nodes places, of which the first n_nodes are NONE; all of `path` is UNUSED.
void take_paths(const int64_t *first, const int64_t *target, const double *score, long n_nodes,
                double best, double others, long min_hits, int64_t *scratch, int64_t *path) {
    Graph graph = {first, target, score, best, others, path};
    Search search = {scratch, scratch + n_nodes, scratch + 2 * n_nodes, scratch + 3 * n_nodes,
                     scratch + 4 * n_nodes};
    int64_t number = 0;
    for (int64_t start = 0; start < n_nodes; start++) {
        if (path[start] != UNUSED) continue;
        measure(&graph, &search, start);
        path[start] = NONE;
        if (search.length[start] < min_hits) continue;
        for (int64_t node = start; node != NONE; node = search.following[node]) path[node] = number;
        number++;
    }
}

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
