// The longest paths through a graph without cycles, each over what those before it left unused.
// plain.py says which.

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
