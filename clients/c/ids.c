/* Ids: random or derived, with the code of the edge that their message travels on. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

enum { MAX_UNLISTED = 1000 };

int acker_random(void *bytes, size_t count, acker_error *error) {
    /* No pool: a forked child, or a snapshot of the machine, would repeat its ids. */
    for (size_t at = 0; at < count; at += 256) {
        if (getentropy((char *)bytes + at, count - at < 256 ? count - at : 256)) {
            return acker_say(error, "REFUSED", "the system's random source failed: %s",
                             strerror(errno));
        }
    }
    return 0;
}

static int draw(uint64_t *ids, size_t count, uint64_t mask, acker_error *error) {
    if (acker_random(ids, count * sizeof *ids, error)) return -1;
    for (size_t i = 0; i < count; i++) {
        while (!(ids[i] &= mask)) {
            if (acker_random(ids + i, sizeof *ids, error)) return -1;
        }
    }
    return 0;
}

int acker_new_ids(uint64_t *ids, size_t count, acker_error *error) {
    return draw(ids, count, TUPLE_MAX, error);
}

int acker_new_anchor(uint64_t *anchor, acker_error *error) {
    return draw(anchor, 1, ANCHOR_MAX, error);
}

/* --- Edges --- */

int acker_read_edges(acker_text names, edge_list *found) {
    memset(found, 0, sizeof *found);
    for (const char *at = names.data, *end = at + names.size; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t size = (size_t)((comma ? comma : end) - at);
        if (found->count == ACKER_MAX_EDGES || size < 1 || size > MAX_NAME) return -1;
        memcpy(found->names[found->count++], at, size);
        at += size + 1;
    }
    return 0;
}

size_t acker_edges_of(const edge_list *its, uint64_t checksum, const char **names) {
    size_t count = 0;
    for (unsigned k = 0; k < its->count; k++) {
        if (checksum >> (EDGE_BIT + k) & 1) names[count++] = its->names[k];
    }
    return count;
}

/* Print a warning for an edge that the namespace does not list, once. */
static void warn(id_maker *its, const char *edge) {
    char list[ACKER_MAX_EDGES * (MAX_NAME + 2) + 1] = "", name[MAX_TEXT + 1];
    for (size_t i = 0; i < its->unlisted_count; i++) {
        if (!strcmp(its->unlisted[i], edge)) return;
    }
    if (its->unlisted_count == MAX_UNLISTED) return;
    its->unlisted = acker_more(its->unlisted, (its->unlisted_count + 1) * sizeof *its->unlisted);
    its->unlisted[its->unlisted_count++] = acker_copy(edge);
    for (unsigned k = 0; k < its->edges.count; k++) {
        if (k) strcat(list, ", ");
        strcat(list, its->edges.names[k]);
    }
    acker_text clean = acker_clip(acker_str(edge), name);
    fprintf(stderr,
            "acker: the namespace does not list edge %.*s (it lists %s): verdicts cannot name it\n",
            (int)clean.size, clean.data, *list ? list : "none");
}

uint64_t acker_code(id_maker *its, const char *edge) {
    if (!edge || !*edge || !*its->salt) return 0;
    for (unsigned k = 0; k < its->edges.count; k++) {
        if (!strcmp(its->edges.names[k], edge)) return UINT64_C(1) << (EDGE_BIT + k);
    }
    warn(its, edge);
    return 0;
}

int acker_draw(const id_maker *its, uint64_t *ids, size_t count, acker_error *error) {
    bool low = its->edges.count || !*its->salt;
    return draw(ids, count, low ? (UINT64_C(1) << EDGE_BIT) - 1 : TUPLE_MAX, error);
}

/* --- Derived ids --- */

/* Return the first 8 bytes of the SHA-256 of some texts, each after its length. */
static uint64_t hash(const acker_text *parts, size_t count) {
    const char **data = acker_alloc(2 * count * sizeof *data);
    size_t *sizes = acker_alloc(2 * count * sizeof *sizes);
    char (*heads)[24] = acker_alloc(count * sizeof *heads);
    uint8_t digest[32];
    for (size_t i = 0; i < count; i++) {
        sizes[2 * i] = (size_t)snprintf(heads[i], sizeof *heads, "%zu:", parts[i].size);
        data[2 * i] = heads[i];
        data[2 * i + 1] = parts[i].data;
        sizes[2 * i + 1] = parts[i].size;
    }
    acker_sha256(data, sizes, 2 * count, digest);
    free(data);
    free(sizes);
    free(heads);
    return acker_get64((char *)digest);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(((const acker_text *)a)->data, ((const acker_text *)b)->data);
}

static int needs_salt(const id_maker *its, acker_error *error) {
    if (*its->salt) return 0;
    return acker_say(error, "SCHEMA", "the namespace has no salt, so no id can be derived");
}

int acker_derive_block(const id_maker *its, acker_text task, acker_text label, uint64_t *block,
                       acker_error *error) {
    acker_text parts[4] = {acker_str(its->salt), acker_str("block"), task, label};
    if (needs_salt(its, error)) return -1;
    *block = hash(parts, 4) >> 14;
    return 0;
}

int acker_derive(const id_maker *its, acker_text key, unsigned n, const acker_text *inputs,
                 size_t count, uint64_t *ids, acker_error *error) {
    char number[12];
    if (needs_salt(its, error)) return -1;
    snprintf(number, sizeof number, "%u", n);
    acker_text *parts = acker_alloc((count + 5) * sizeof *parts);
    parts[0] = acker_str(its->salt);
    parts[1] = acker_str("child");
    parts[2] = key;
    parts[3] = acker_str(number);
    if (count) memcpy(parts + 4, inputs, count * sizeof *parts);
    qsort(parts + 4, count, sizeof *parts, by_bytes);
    for (size_t i = 0; i < count; i++) {
        parts[4 + count] = inputs[i];
        ids[i] = hash(parts, count + 5) >> (its->edges.count ? 9 : 1);
    }
    free(parts);
    return 0;
}

void acker_id_maker_free(id_maker *its) {
    for (size_t i = 0; i < its->unlisted_count; i++) free(its->unlisted[i]);
    free(its->unlisted);
}
