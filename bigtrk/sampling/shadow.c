// ShaDow subgraphs: a random walk against the edges from each root, and the edges among the nodes
// it touches. The draws are those of subgraphs.py.

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9E3779B97F4A7C15ull

// Edges by destination: those that end at node v are first[v] to first[v + 1] - 1.
typedef struct {
    const int64_t *first;
    const int32_t *source;
    long n_nodes;
} Graph;

typedef struct {
    int32_t *at;
    long size, room;
} List;

typedef struct {
    List node, edge, source, destination;
} Subgraphs;

// One thread's scratch. `touched` has a bit per node and is empty between roots; `row` is read only
// where it was written for the present root.
typedef struct {
    uint64_t *touched;
    int32_t *row;
    List frontier, next, picks;
} Scratch;

typedef struct {
    int threads;
    long n_roots;
    Subgraphs part[];
} Sample;

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

static uint64_t drawn(uint64_t key, uint64_t counter) {
    return mixed(key + GOLDEN * (counter + 1));
}

static int64_t below(uint64_t bits, int64_t n) {
    return (int64_t)(((bits >> 32) * (uint64_t)n) >> 32);
}

static int reserve(List *list, long more) {
    if (list->size + more <= list->room) return 1;
    long room = 2 * list->room + more;
    int32_t *at = realloc(list->at, room * sizeof(int32_t));
    if (!at) return 0;
    list->at = at;
    list->room = room;
    return 1;
}

static int is_touched(const Scratch *s, int32_t v) {
    return (s->touched[v >> 6] >> (v & 63)) & 1;
}

static void visit(Scratch *s, int32_t v) {
    s->touched[v >> 6] |= 1ull << (v & 63);
    s->next.at[s->next.size++] = v;
}

// Floyd's algorithm: all sets of `fanout` of the `n` edges from `begin` on are equally likely.
static int visit_some(Scratch *s, const int32_t *source, int64_t n, int fanout, uint64_t key,
                      uint64_t counter) {
    if (!reserve(&s->picks, fanout)) return 0;
    for (int k = 0; k < fanout; k++) {
        int64_t last = n - fanout + k, pick = below(drawn(key, counter + k), last + 1);
        for (int i = 0; i < k; i++)
            if (s->picks.at[i] == pick) {
                pick = last;
                break;
            }
        s->picks.at[k] = pick;
        visit(s, source[pick]);
    }
    return 1;
}

static int walk(const Graph *g, Scratch *s, int32_t root, uint64_t key, int depth, int fanout) {
    uint64_t counter = 0;
    s->next.size = 0;
    visit(s, root);
    for (int hop = 0; hop < depth; hop++) {
        List done = s->frontier;
        s->frontier = s->next;
        s->next = done;
        s->next.size = 0;
        for (long i = 0; i < s->frontier.size; i++, counter += fanout) {
            int64_t begin = g->first[s->frontier.at[i]];
            int64_t n = g->first[s->frontier.at[i] + 1] - begin;
            if (!reserve(&s->next, n < fanout ? n : fanout)) return 0;
            if (n <= fanout)
                for (int64_t e = begin; e < begin + n; e++) visit(s, g->source[e]);
            else if (!visit_some(s, g->source + begin, n, fanout, key, counter)) return 0;
        }
    }
    return 1;
}

// Adds the touched nodes, ascending, and their rows.
static int add_nodes(const Graph *g, Scratch *s, List *node) {
    long words = (g->n_nodes + 63) / 64;
    for (long w = 0; w < words; w++)
        for (uint64_t bits = s->touched[w]; bits; bits &= bits - 1) {
            int32_t v = 64 * w + __builtin_ctzll(bits);
            if (!reserve(node, 1)) return 0;
            s->row[v] = node->size;
            node->at[node->size++] = v;
        }
    return 1;
}

// Adds the edges among the nodes from row `i` on, by (destination, source) as the graph's are.
static int add_edges(const Graph *g, Scratch *s, Subgraphs *out, long i) {
    for (; i < out->node.size; i++) {
        int64_t begin = g->first[out->node.at[i]], n = g->first[out->node.at[i] + 1] - begin;
        if (!reserve(&out->edge, n) || !reserve(&out->source, n)) return 0;
        if (!reserve(&out->destination, n)) return 0;
        long size = out->edge.size;
        for (int64_t e = begin; e < begin + n; e++) {
            // A branch would be mispredicted at every other edge.
            out->edge.at[size] = e;
            size += is_touched(s, g->source[e]);
        }
        for (long e = out->edge.size; e < size; e++) {
            out->source.at[e] = s->row[g->source[out->edge.at[e]]];
            out->destination.at[e] = i;
        }
        out->edge.size = out->source.size = out->destination.size = size;
    }
    return 1;
}

static int add_root(const Graph *g, Scratch *s, Subgraphs *out, int32_t root, uint64_t key,
                    int depth, int fanout) {
    long before = out->node.size;
    if (!walk(g, s, root, drawn(key, root), depth, fanout)) return 0;
    if (!add_nodes(g, s, &out->node) || !add_edges(g, s, out, before)) return 0;
    for (long i = before; i < out->node.size; i++) s->touched[out->node.at[i] >> 6] = 0;
    return 1;
}

// A thread takes the roots from its own begin to the next one's.
static long begin_of(const Sample *sample, int thread) {
    return sample->n_roots * thread / sample->threads;
}

static int fill(const Graph *g, Sample *sample, int thread, const int64_t *root, uint64_t key,
                int depth, int fanout, int64_t *nodes, int64_t *edges) {
    Scratch s = {0};
    s.touched = calloc((g->n_nodes + 63) / 64 + 1, 8);
    s.row = malloc((g->n_nodes + 1) * sizeof(int32_t));
    Subgraphs *out = &sample->part[thread];
    // The lists change places, and either may take the next root.
    int fine = s.touched && s.row && reserve(&s.next, 1) && reserve(&s.frontier, 1);
    for (long r = begin_of(sample, thread); fine && r < begin_of(sample, thread + 1); r++) {
        long n = out->node.size, e = out->edge.size;
        fine = add_root(g, &s, out, root[r], key, depth, fanout);
        nodes[r] = out->node.size - n;
        edges[r] = out->edge.size - e;
    }
    free(s.touched), free(s.row), free(s.frontier.at), free(s.next.at), free(s.picks.at);
    return fine;
}

void shadow_free(Sample *sample) {
    for (int t = 0; sample && t < sample->threads; t++) {
        Subgraphs *part = &sample->part[t];
        free(part->node.at), free(part->edge.at);
        free(part->source.at), free(part->destination.at);
    }
    free(sample);
}

// Samples `n_roots` subgraphs, and counts each one's nodes and edges; NULL without memory.
Sample *shadow_sample(const int64_t *first, const int32_t *source, long n_nodes,
                      const int64_t *root, long n_roots, uint64_t key, int depth, int fanout,
                      int threads, int64_t *nodes, int64_t *edges) {
    Graph g = {first, source, n_nodes};
    Sample *sample = calloc(1, sizeof(Sample) + threads * sizeof(Subgraphs));
    if (!sample) return NULL;
    sample->threads = threads;
    sample->n_roots = n_roots;
    int failed = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(| : failed)
    for (int t = 0; t < threads; t++)
        failed |= !fill(&g, sample, t, root, key, depth, fanout, nodes, edges);
    if (!failed) return sample;
    shadow_free(sample);
    return NULL;
}

// Copies the sample out, each root's part to where `node_at` and `edge_at` say, and frees it.
void shadow_collect(Sample *sample, const int64_t *node_at, const int64_t *edge_at, int64_t *node,
                    int64_t *edge, int64_t *source, int64_t *destination) {
#pragma omp parallel for num_threads(sample->threads) schedule(static, 1)
    for (int t = 0; t < sample->threads; t++) {
        Subgraphs *part = &sample->part[t];
        long begin = begin_of(sample, t);
        for (long i = 0; i < part->node.size; i++) node[node_at[begin] + i] = part->node.at[i];
        for (long i = 0; i < part->edge.size; i++) {
            edge[edge_at[begin] + i] = part->edge.at[i];
            source[edge_at[begin] + i] = node_at[begin] + part->source.at[i];
            destination[edge_at[begin] + i] = node_at[begin] + part->destination.at[i];
        }
    }
    shadow_free(sample);
}
