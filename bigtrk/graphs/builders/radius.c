// Pairs of near points; radius.py says which, and finds the same with scipy.

#include <stdint.h>
#include <string.h>

#define BLOCK 32

// blocks: points [leaves, d, BLOCK], neighbours together; hit: which each is, or -1. boxes: least and
// greatest coordinates [2, d] of node 1, the root of a binary tree, to its leaves, the blocks. The
// children of node a are 2a and 2a + 1. pairs [room, 2]: those beyond are only counted.
typedef struct {
    const double *blocks, *boxes;
    const int64_t *hit, *module;
    long leaves, d;
    double squared;
    int64_t *pairs;
    long room, found;
} Search;

static int are_near(const Search *s, long a, long b) {
    const double *one = s->boxes + a * 2 * s->d, *other = s->boxes + b * 2 * s->d;
    double sum = 0;
    for (long k = 0; k < s->d; k++) {
        double below = one[k] - other[s->d + k], above = other[k] - one[s->d + k];
        double gap = below > above ? below : above;
        sum += gap > 0 ? gap * gap : 0;
    }
    return sum <= s->squared;
}

static void compare(Search *s, long a, long b) {
    const double *ones = s->blocks + a * BLOCK * s->d, *others = s->blocks + b * BLOCK * s->d;
    const int64_t *hits = s->hit + a * BLOCK, *other_hits = s->hit + b * BLOCK;
    for (long i = 0; i < BLOCK && hits[i] >= 0; i++) {
        double sums[BLOCK] = {0};
        for (long k = 0; k < s->d; k++)
            for (long j = 0; j < BLOCK; j++) {
                double gap = ones[k * BLOCK + i] - others[k * BLOCK + j];
                sums[j] += gap * gap;
            }
        for (long j = a == b ? i + 1 : 0; j < BLOCK && other_hits[j] >= 0; j++) {
            if (sums[j] > s->squared) continue;
            const int64_t *one = s->module + 3 * hits[i], *other = s->module + 3 * other_hits[j];
            if (one[0] == other[0] && one[1] == other[1] && one[2] == other[2]) continue;
            if (s->found < s->room) {
                s->pairs[2 * s->found] = hits[i];
                s->pairs[2 * s->found + 1] = other_hits[j];
            }
            s->found++;
        }
    }
}

static void visit(Search *s, long a, long b) {
    if (!are_near(s, a, b)) return;
    if (a >= s->leaves) {
        compare(s, a - s->leaves, b - s->leaves);
        return;
    }
    visit(s, 2 * a, 2 * b);
    visit(s, 2 * a, 2 * b + 1);
    if (a != b) visit(s, 2 * a + 1, 2 * b);
    visit(s, 2 * a + 1, 2 * b + 1);
}

// Returns the number of pairs within the radius whose hits lie in different modules.
long near_pairs(const double *blocks, const double *boxes, const int64_t *hit,
                const int64_t *module, long leaves, long d, double radius, int64_t *pairs,
                long room) {
    Search search = {blocks, boxes, hit, module, leaves, d, radius * radius, pairs, room, 0};
    visit(&search, 1, 1);
    return search.found;
}
