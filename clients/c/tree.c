/* Trees: tracking, emitting, acking and failing. */
#define _GNU_SOURCE
#include <search.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

/* The first reply was lost, and it said whether the tree was rejected. Return 1 if it was, 0 if
 * not, -1 if that is unknown. */
static int was_rejected(acker_client *client, uint64_t anchor, acker_error *error) {
    uint8_t wire[8];
    acker_text arg = {(const char *)wire, sizeof wire};
    acker_put64(wire, anchor);
    for (bool fresh = false;; fresh = true) {
        unsigned shards, buckets;
        acker_error said;
        if (acker_shards(client, fresh, &shards, &buckets, error)) return -1;
        redisReply *reply = acker_run(client, SHOW, acker_shard_of(anchor, shards), 1, &arg, &said);
        if (reply) {
            /* The reply about a tree that is not pending has only the time. */
            bool pending = reply->type == REDIS_REPLY_ARRAY && reply->elements > 1 &&
                           reply->element[1]->integer < buckets;
            freeReplyObject(reply);
            return !pending;
        }
        bool others = !strcmp(said.code, "SHARD") || !strcmp(said.code, "NAMESPACE");
        if (fresh || !others) return acker_say(error, said.code, "%s", said.words);
    }
}

int acker_draw_ids(acker_client *client, const char *edge, uint64_t *ids, size_t count,
                   acker_error *error) {
    id_maker *maker = acker_ids(client, error);
    uint64_t delta;
    if (!maker) return -1;
    do {
        if (acker_draw(maker, ids, count, error)) return -1;
        /* A tree with delta zero would be complete immediately, and two equal ids would cancel. */
    } while (count && (acker_xor(ids, count, &delta, NULL) || !delta));
    uint64_t code = acker_code(maker, edge);
    for (size_t i = 0; i < count; i++) ids[i] |= code;
    return 0;
}

int acker_track(acker_client *client, const char *task, acker_text source_id, const char *edge,
                uint64_t *anchor, uint64_t *ids, size_t count, acker_error *error) {
    acker_batch *batch = acker_batch_new(task, error);
    acker_applied applied;
    if (!batch) return -1;
    /* Refuse invalid input before the configuration is read. */
    int done = acker_check_text("source id", source_id, 1, error);
    if (!done) done = acker_new_anchor(anchor, error);
    if (!done && count) done = acker_draw_ids(client, edge, ids, count, error);
    if (!done) done = acker_batch_track(batch, *anchor, source_id, ids, count, error);
    if (!done) done = acker_apply(client, batch, &applied, error);
    if (!done) {
        int rejected = applied.rejected_count > 0;
        if (applied.repeated && count) rejected = was_rejected(client, *anchor, error);
        if (rejected) done = -1;
        if (rejected > 0) {
            acker_say(error, "REJECTED",
                      "the tree was nacked, because too much is pending: send none of its "
                      "messages, and try again later");
        }
    }
    acker_batch_free(batch);
    return done;
}

int acker_track_block(acker_client *client, const char *task, acker_text label,
                      const uint64_t *deltas, size_t count, uint64_t *block, acker_error *error) {
    acker_text source = acker_str(task ? task : "");
    acker_applied applied;
    /* Refuse invalid input before the configuration is read. */
    if (acker_check_name("task", source.data, source.size, error) ||
        acker_check_block(label, deltas, count, error)) {
        return -1;
    }
    id_maker *maker = acker_ids(client, error);
    if (!maker || acker_derive_block(maker, source, label, block, error)) return -1;
    acker_batch *batch = acker_batch_new(task, error);
    int done = acker_batch_track_block(batch, *block, label, deltas, count, error);
    if (!done) done = acker_apply(client, batch, &applied, error);
    if (!done) {
        int rejected = applied.rejected_blocks_count > 0;
        bool open = false;
        for (size_t i = 0; i < count; i++) open |= deltas[i] != 0;
        if (applied.repeated && open) {
            rejected = was_rejected(client, acker_block_anchor(*block, 0), error);
        }
        if (rejected) done = -1;
        if (rejected > 0) {
            acker_say(error, "REJECTED",
                      "block %.*s was nacked: too much is pending, or an earlier block of this "
                      "number is expiring; do not emit its messages, and replay it later under "
                      "another label (a block above twice a shard's share of high_water never "
                      "fits)",
                      (int)(label.size < 80 ? label.size : 80), label.data);
        }
    }
    acker_batch_free(batch);
    return done;
}

typedef struct input {
    acker_id *ids;
    size_t count;
} input;

struct acker_processing {
    acker_client *client;
    input *inputs;
    size_t count;
    /* For each tree, by anchor, the XOR of the ids of its inputs and of all messages that they
     * caused. One row covers all inputs of a tree, so it does not matter which input's edge id has
     * the code of an edge. */
    acker_id *rows;
    size_t rows_count;
    void *keys; /* those that were used; a tree of tsearch() */
    const char *state;
    pid_t pid;
};

static int by_anchor(const void *a, const void *b) {
    const acker_id *x = a, *y = b;
    if (x->anchor != y->anchor) return x->anchor > y->anchor ? 1 : -1;
    return (x->tuple > y->tuple) - (x->tuple < y->tuple);
}

static acker_text strip(const char *from, const char *to) {
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
    acker_text found = {from, (size_t)(to - from)};
    return found;
}

/* Sort ids by anchor, and XOR those of the same tree; return the number of ids left. */
static size_t merge(acker_id *ids, size_t count) {
    size_t last = 0;
    if (!count) return 0;
    qsort(ids, count, sizeof *ids, by_anchor);
    for (size_t i = 1; i < count; i++) {
        if (ids[i].anchor == ids[last].anchor) {
            ids[last].tuple ^= ids[i].tuple;
        } else {
            ids[++last] = ids[i];
        }
    }
    return last + 1;
}

/* Return the text of a message's id; free() it. */
static char *format(const acker_id *ids, size_t count) {
    char *text = acker_alloc(count * ACKER_ID_SIZE + 1);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (i) text[at++] = ',';
        at += acker_format(ids[i].anchor, ids[i].tuple, text + at);
    }
    text[at] = 0;
    return text;
}

/* Parse <anchor>:<tuple>, joined by commas. */
static int parse(acker_text text, input *to, acker_error *error) {
    const char *at = text.data, *end = text.data + text.size;
    if (text.size > MAX_MESSAGE) {
        return acker_say(error, "REFUSED", "the text of a message id has at most %d bytes, not %zu",
                         MAX_MESSAGE, text.size);
    }
    if (!strip(at, end).size) return 0;
    for (bool more = true; more;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        acker_text pair = strip(at, comma ? comma : end);
        const char *colon = pair.size ? memchr(pair.data, ':', pair.size) : NULL;
        acker_text left = {pair.data, colon ? (size_t)(colon - pair.data) : 0};
        acker_text right = {colon ? colon + 1 : "", colon ? pair.size - left.size - 1 : 0};
        acker_id one;
        uint64_t delta;
        if (!colon || left.size > 19 || right.size > 19) {
            char shape[ACKER_SHAPE];
            return acker_say(error, "REFUSED", "an anchored tuple is <anchor>:<tuple>, not '%s'",
                             acker_shape(pair, shape));
        }
        if (acker_parse_id(left, &one.anchor, error) || acker_check_anchor(one.anchor, error) ||
            acker_parse_id(right, &one.tuple, error) || acker_xor(&one.tuple, 1, &delta, error)) {
            return -1;
        }
        to->ids = acker_more(to->ids, (to->count + 1) * sizeof *to->ids);
        to->ids[to->count++] = one;
        if ((more = comma != NULL)) at = comma + 1;
    }
    qsort(to->ids, to->count, sizeof *to->ids, by_anchor);
    for (size_t i = 1; i < to->count; i++) {
        if (to->ids[i].anchor == to->ids[i - 1].anchor) {
            return acker_say(error, "REFUSED", "anchor %llu occurs twice in one message id",
                             (unsigned long long)to->ids[i].anchor);
        }
    }
    return 0;
}

void acker_processing_free(acker_processing *its) {
    if (!its) return;
    for (size_t i = 0; i < its->count; i++) free(its->inputs[i].ids);
    free(its->inputs);
    free(its->rows);
    tdestroy(its->keys, free);
    free(its);
}

acker_processing *acker_process(acker_client *client, const acker_text *messages, size_t count,
                                acker_error *error) {
    acker_processing *its = acker_alloc(sizeof *its);
    size_t total = 0;
    memset(its, 0, sizeof *its);
    its->client = client;
    its->pid = getpid();
    its->count = count;
    its->inputs = acker_alloc(count * sizeof *its->inputs);
    if (count) memset(its->inputs, 0, count * sizeof *its->inputs);
    for (size_t i = 0; i < count; i++) {
        if (parse(messages[i], &its->inputs[i], error)) {
            acker_processing_free(its);
            return NULL;
        }
        total += its->inputs[i].count;
    }
    acker_id *all = acker_alloc(total * sizeof *all);
    size_t size = 0;
    bool twice = false;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < its->inputs[i].count; k++) all[size++] = its->inputs[i].ids[k];
    }
    qsort(all, size, sizeof *all, by_anchor);
    for (size_t i = 1; i < size; i++) twice |= !by_anchor(&all[i], &all[i - 1]);
    its->rows = all;
    its->rows_count = merge(all, size);
    if (twice) {
        acker_say(error, "REFUSED", "a message is given twice; its rows would cancel");
        acker_processing_free(its);
        return NULL;
    }
    return its;
}

static int check(const acker_processing *its, acker_error *error) {
    if (its->state) return acker_say(error, "CLOSED", "this message was %s before", its->state);
    if (its->pid == getpid()) return 0;
    /* The parent's row would not contain a child's emit, so the parent's ack could be false. */
    return acker_say(error, "CLOSED",
                     "this message was begun before the fork: only the parent process may emit, "
                     "ack or touch it; fork first, or pass the message's id to the child");
}

/* --- Children --- */

static int by_key(const void *a, const void *b) {
    const acker_text *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->size ? memcmp(x->data, y->data, x->size) : 0;
}

static void use_key(acker_processing *its, acker_text key) {
    acker_text *kept = acker_alloc(sizeof *kept + key.size);
    kept->data = (char *)(kept + 1);
    kept->size = key.size;
    if (key.size) memcpy(kept + 1, key.data, key.size);
    if (!tsearch(kept, &its->keys, by_key)) abort(); /* memory is exhausted */
}

/* Set the inputs at some places, without those that are in no tree; return their number, or -1. */
static long choose(const acker_processing *its, const size_t *places, size_t count,
                   const input **chosen, acker_error *error) {
    long size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t place = places ? places[i] : i;
        bool twice = false;
        for (size_t k = 0; places && k < i; k++) twice |= places[k] == place;
        if (place >= its->count || twice) {
            return acker_say(error, "REFUSED",
                             twice ? "input %zu is given twice"
                                   : "there is no input %zu; inputs are numbered from 0",
                             place);
        }
        if (its->inputs[place].count) chosen[size++] = &its->inputs[place];
    }
    return size;
}

/* Derive an edge id for each input from the key and all inputs. */
static int derive(const id_maker *maker, const input *const *inputs, size_t count, acker_text key,
                  unsigned attempt, uint64_t *edges, acker_error *error) {
    acker_text *texts = acker_alloc(count * sizeof *texts);
    for (size_t i = 0; i < count; i++)
        texts[i] = acker_str(format(inputs[i]->ids, inputs[i]->count));
    int done = acker_derive(maker, key, attempt, texts, count, edges, error);
    for (size_t i = 0; i < count; i++) free((char *)texts[i].data);
    free(texts);
    return done;
}

/* Set the id of a new message in each tree, by anchor, without a code: the XOR of the edge ids of
 * its inputs. Return the number of trees, or -1. */
static long make_child(const id_maker *maker, const input *const *inputs, size_t count,
                       acker_text key, acker_id *ids, acker_error *error) {
    uint64_t *edges = acker_alloc(count * sizeof *edges);
    size_t size = 0;
    int done = 0;
    bool sound = false;
    for (unsigned attempt = 0; !done && !sound; attempt++) {
        done = key.data ? derive(maker, inputs, count, key, attempt, edges, error)
                        : acker_draw(maker, edges, count, error);
        size = 0;
        for (size_t i = 0; !done && i < count; i++) {
            for (size_t k = 0; k < inputs[i]->count; k++) {
                acker_id id = {inputs[i]->ids[k].anchor, edges[i]};
                ids[size++] = id;
            }
        }
        size = merge(ids, size);
        sound = true; /* unless edge ids cancel, probability 2^-55 */
        for (size_t i = 0; i < size; i++) sound &= ids[i].tuple != 0;
    }
    free(edges);
    if (done) return -1;
    if (size > MAX_TREES) {
        return acker_say(error, "REFUSED",
                         "a message belongs to at most %d trees, not %zu; emit several, each "
                         "anchored to some of the inputs",
                         MAX_TREES, size);
    }
    return (long)size;
}

char *acker_emit(acker_processing *its, const size_t *places, size_t count,
                 const acker_child *child, acker_error *error) {
    static const acker_child plain;
    if (!child) child = &plain;
    if (check(its, error)) return NULL;
    if (!places) count = its->count;
    if (child->key.data && tfind(&child->key, &its->keys, by_key)) {
        acker_say(error, "REFUSED",
                  "this key was already used for another message; give each child its own");
        return NULL;
    }
    bool anchored = false;
    for (size_t i = 0; i < its->count; i++) anchored |= its->inputs[i].count > 0;
    id_maker *maker = acker_maker(its->client, child->key.data && anchored, error);
    if (!maker) return NULL;
    const input **inputs = acker_alloc(count * sizeof *inputs);
    acker_id *ids = NULL;
    char *text = NULL;
    size_t total = 0;
    long size = choose(its, places, count, inputs, error);
    if (size >= 0) {
        count = (size_t)size;
        for (size_t i = 0; i < count; i++) total += inputs[i]->count;
        ids = acker_alloc(total * sizeof *ids);
        size = make_child(maker, inputs, count, child->key, ids, error);
    }
    if (size >= 0) {
        /* Add the id to the rows before the caller gets it. Both are sorted by anchor. */
        uint64_t code = acker_code(maker, child->edge);
        acker_id *row = its->rows;
        for (long i = 0; i < size; i++) {
            ids[i].tuple |= code;
            while (row->anchor != ids[i].anchor) row++;
            row->tuple ^= ids[i].tuple;
        }
        if (child->key.data) use_key(its, child->key);
        text = format(ids, (size_t)size);
    }
    free(inputs);
    free(ids);
    return text;
}

/* Send a row for each tree, whole or, for TOUCH, without a delta. */
static int send_rows(acker_processing *its, const char *state, uint8_t flags, acker_text why,
                     acker_error *error) {
    if (check(its, error)) return -1;
    acker_id *rows = acker_alloc(its->rows_count * sizeof *rows);
    for (size_t i = 0; i < its->rows_count; i++) {
        rows[i] = its->rows[i];
        if (flags == TOUCH) rows[i].tuple = 0;
    }
    int done = acker_put(its->client, rows, its->rows_count, flags, why, error);
    free(rows);
    if (!done && state) its->state = state; /* after an error no row was accepted: it stays open */
    return done;
}

int acker_processed(acker_processing *its, acker_error *error) {
    return send_rows(its, "acked", 0, acker_str(""), error);
}

int acker_process_failed(acker_processing *its, acker_text why, acker_error *error) {
    char room[256];
    return send_rows(its, "failed", FAIL, acker_clip(why, room), error);
}

int acker_process_touch(acker_processing *its, acker_error *error) {
    return send_rows(its, NULL, TOUCH, acker_str(""), error);
}
