/* Verdicts of a task, read from its streams. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

/* An entry that was read; its outcomes point into it. */
typedef struct entry {
    unsigned shard;
    redisReply *reply; /* id and fields */
    json *rows;        /* of loose trees, or of failed trees of a block */
} entry;

typedef struct list {
    acker_outcomes seen;
    char task[65];
    edge_list edges;
    entry *entries;
    size_t count;
    acker_outcome *outcomes;
    size_t size, room;
} list;

static int spoilt(acker_error *error) {
    return acker_say(error, "SCHEMA",
                     "an entry of the outcomes cannot be parsed; has another program written it?");
}

static acker_text field(const redisReply *fields, const char *name) {
    acker_text found = {NULL, 0};
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *value = fields->element[i + 1];
        if (strcmp(fields->element[i]->str, name)) continue;
        found.data = value->str;
        found.size = value->len;
    }
    return found;
}

static acker_outcome *another(list *all, const char *verdict, const char *reason, uint64_t anchor) {
    if (all->size == all->room) {
        all->room = all->room ? 2 * all->room : 64;
        all->outcomes = acker_more(all->outcomes, all->room * sizeof *all->outcomes);
    }
    acker_outcome *made = &all->outcomes[all->size++];
    memset(made, 0, sizeof *made);
    made->verdict = verdict;
    made->reason = reason;
    made->anchor = anchor;
    made->source_id = made->why = acker_str("");
    made->cause = "";
    return made;
}

static void set_expired(const list *all, acker_outcome *one, const char *cause, uint64_t residual,
                        int64_t idle_ms) {
    one->cause = cause;
    one->residual = residual;
    one->idle_ms = idle_ms;
    one->edges_count = acker_edges_of(&all->edges, residual, one->edges);
}

static bool hex(acker_text text, uint64_t *value) {
    char digits[17], *end;
    if (!text.size || text.size > 16) return false;
    memcpy(digits, text.data, text.size);
    digits[text.size] = 0;
    *value = strtoull(digits, &end, 16);
    return end == digits + text.size;
}

static bool is_text(const json *value) {
    return value->kind == JSON_STRING;
}

/* Return a number of milliseconds, exact in a double. */
static int64_t ms(const json *value) {
    return (int64_t)strtod(value->text.data, NULL);
}

static int read_loose(list *all, const redisReply *fields, const json *rows, acker_error *error) {
    const char *verdict = field(fields, "verdict").data, *reason = field(fields, "reason").data;
    bool expired = !strcmp(reason, "expired");
    if (!rows || rows->kind != JSON_LIST) return spoilt(error);
    for (size_t i = 0; i < rows->count; i++) {
        const json *row = rows->items[i].items;
        uint64_t anchor, residual = 0;
        if (rows->items[i].count != (expired ? 6 : 4) || !is_text(row) || !is_text(row + 1) ||
            !is_text(row + 3) || row[2].kind != JSON_NUMBER || !hex(row[0].text, &anchor) ||
            (expired &&
             (!is_text(row + 4) || !hex(row[4].text, &residual) || row[5].kind != JSON_NUMBER))) {
            return spoilt(error);
        }
        acker_outcome *one = another(all, verdict, reason, anchor);
        one->source_id = row[1].text;
        one->age_ms = ms(row + 2);
        if (expired) {
            set_expired(all, one, row[3].text.data, residual, ms(row + 5));
        } else {
            one->why = row[3].text;
        }
    }
    return 0;
}

/* --- Bitmaps of the slots of a block: bit 7 of byte 0 is slot 0 --- */

static bool has(const void *bitmap, size_t slot) {
    return ((const uint8_t *)bitmap)[slot / 8] >> (7 - slot % 8) & 1;
}

/* Return whether some bytes are the bitmap of a block: the bits after its last slot are 0. */
static bool fits(const void *bitmap, size_t size, size_t slots) {
    if (slots < 1 || size != (slots + 7) / 8) return false;
    for (size_t slot = slots; slot < 8 * size; slot++) {
        if (has(bitmap, slot)) return false;
    }
    return true;
}

/* Parse a bitmap in hex; return whether it is one. */
static bool read_bitmap(acker_text text, size_t slots, uint8_t *bitmap) {
    static const char digits[] = "0123456789abcdef";
    if (text.size != 2 * ((slots + 7) / 8)) return false;
    for (size_t i = 0; i < text.size; i++) {
        const char *digit = text.data[i] ? strchr(digits, text.data[i]) : NULL;
        if (!digit) return false;
        bitmap[i / 2] = (uint8_t)(bitmap[i / 2] << 4 | (digit - digits));
    }
    return fits(bitmap, text.size / 2, slots);
}

static int read_block(list *all, const redisReply *fields, const json *rows, acker_error *error) {
    const char *verdict = field(fields, "verdict").data, *reason = field(fields, "reason").data;
    acker_text label = field(fields, "label"), age = field(fields, "age");
    uint64_t number;
    if (!label.data || !age.data || !hex(field(fields, "block"), &number) || number > BLOCK_MAX) {
        return spoilt(error);
    }
    if (rows) {
        for (size_t i = 0; i < rows->count; i++) {
            const json *row = rows->items[i].items;
            if (rows->items[i].count != 2 || row->kind != JSON_NUMBER || !is_text(row + 1)) {
                return spoilt(error);
            }
            unsigned slot = (unsigned)atoi(row->text.data);
            acker_outcome *one = another(all, verdict, reason, acker_block_anchor(number, slot));
            one->source_id = label;
            one->age_ms = atoll(age.data);
            one->why = row[1].text;
        }
        return 0;
    }
    uint8_t failed[MAX_SLOTS / 8 + 1] = {0}, nacked[MAX_SLOTS / 8 + 1] = {0};
    uint8_t present[MAX_SLOTS / 8 + 1];
    bool mixed = !strcmp(verdict, "mixed");
    acker_text slots = field(fields, "slots"), residuals = field(fields, "residuals");
    acker_text cause = field(fields, "cause"), idle = field(fields, "idle");
    acker_text before = field(fields, "failed"), held = field(fields, "present");
    long count = slots.data ? strtol(slots.data, NULL, 10) : 0;
    if (count < 1 || count > MAX_SLOTS) return spoilt(error);
    memset(present, 0xff, sizeof present);
    if ((before.size && !read_bitmap(before, (size_t)count, failed)) ||
        (held.data && !read_bitmap(held, (size_t)count, present)) ||
        (mixed && (!read_bitmap(field(fields, "nacked"), (size_t)count, nacked) || !cause.data ||
                   !idle.data))) {
        return spoilt(error);
    }
    size_t at = 0;
    for (unsigned slot = 0; slot < (unsigned)count; slot++) {
        bool expired = has(nacked, slot);
        uint64_t residual = 0;
        if (expired) {
            if (residuals.size < at + 16) return spoilt(error);
            acker_text digits = {residuals.data + at, 16};
            if (!hex(digits, &residual)) return spoilt(error);
            at += 16;
        }
        if (has(failed, slot) || !has(present, slot)) continue; /* nacked before, or no tree */
        if (mixed) verdict = expired ? "nack" : "ack";
        if (mixed) reason = expired ? "expired" : "completed";
        acker_outcome *one = another(all, verdict, reason, acker_block_anchor(number, slot));
        one->source_id = label;
        one->age_ms = atoll(age.data);
        if (expired) set_expired(all, one, cause.data, residual, atoll(idle.data));
    }
    return mixed && at != residuals.size ? spoilt(error) : 0;
}

/* Parse one entry of a reply, and take ownership of it. */
static int read_entry(list *all, unsigned shard, redisReply **from, acker_error *error) {
    redisReply *reply = *from;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        return spoilt(error);
    }
    redisReply *fields = reply->element[1];
    for (size_t i = 0; i < fields->elements; i++) {
        if (fields->element[i]->type != REDIS_REPLY_STRING) return spoilt(error);
    }
    all->entries = acker_more(all->entries, (all->count + 1) * sizeof *all->entries);
    entry *its = &all->entries[all->count++];
    its->shard = shard;
    its->reply = reply;
    *from = NULL;
    acker_text rows = field(fields, "rows");
    its->rows = rows.data ? acker_json(rows.data, rows.size) : NULL;
    if (!field(fields, "verdict").data || !field(fields, "reason").data ||
        (rows.data && !its->rows)) {
        return spoilt(error);
    }
    size_t before = all->size;
    int done = field(fields, "block").data ? read_block(all, fields, its->rows, error)
                                           : read_loose(all, fields, its->rows, error);
    if (done) return -1;
    /* If a bitmap is lost, there are more verdicts: acks of trees that failed before, or do not
     * exist. */
    acker_text n = field(fields, "n");
    return n.data && strtoull(n.data, NULL, 10) == all->size - before ? 0 : spoilt(error);
}

void acker_outcomes_free(acker_outcomes *outcomes) {
    list *all = (list *)outcomes;
    if (!all) return;
    for (size_t i = 0; i < all->count; i++) {
        freeReplyObject(all->entries[i].reply);
        acker_json_free(all->entries[i].rows);
    }
    free(all->entries);
    free(all->outcomes);
    free(all);
}

static int read_shard(acker_client *client, list *all, unsigned shard, unsigned entries,
                      acker_error *error) {
    char prefix[112], stream[200], count[16];
    acker_prefix(client, shard, prefix);
    snprintf(stream, sizeof stream, "%s:outcomes:%s", prefix, all->task);
    snprintf(count, sizeof count, "%u", entries);
    acker_text words[6] = {acker_str("XRANGE"), acker_str(stream),  acker_str("-"),
                           acker_str("+"),      acker_str("COUNT"), acker_str(count)};
    redisReply *reply = acker_command(client, shard, 6, words, error);
    if (!reply) return -1;
    int done = reply->type == REDIS_REPLY_ARRAY ? 0 : spoilt(error);
    for (size_t i = 0; !done && i < reply->elements; i++) {
        done = read_entry(all, shard, &reply->element[i], error);
    }
    freeReplyObject(reply); /* without the entries that read_entry took */
    return done;
}

acker_outcomes *acker_read(acker_client *client, const char *task, unsigned entries,
                           acker_error *error) {
    if (acker_check_name("task", task, strlen(task), error)) return NULL;
    if (entries < 1 || entries > MAX_TAKE) {
        acker_say(error, "REFUSED", "count must be 1 to %d entries a shard, not %u", MAX_TAKE,
                  entries);
        return NULL;
    }
    for (bool fresh = false;; fresh = true) {
        unsigned shards;
        if (acker_shards(client, fresh, &shards, NULL, error)) return NULL;
        list *all = acker_alloc(sizeof *all);
        memset(all, 0, sizeof *all);
        strcpy(all->task, task);
        all->edges = acker_ids(client, error)->edges; /* the configuration is known */
        int done = 0;
        for (unsigned shard = 0; !done && shard < shards; shard++) {
            done = read_shard(client, all, shard, entries, error);
        }
        /* A deleted stream reads like an empty one: check that the number of shards is the same. */
        char meta[120], same[16];
        snprintf(same, sizeof same, "%u", shards);
        acker_prefix(client, 0, meta);
        strcat(meta, ":meta");
        acker_text words[3] = {acker_str("HGET"), acker_str(meta), acker_str("shards")};
        redisReply *now = done ? NULL : acker_command(client, 0, 3, words, error);
        bool others = now && now->type == REDIS_REPLY_STRING && strcmp(now->str, same);
        if (now) freeReplyObject(now);
        if (now && !(others && !fresh)) {
            all->seen.count = all->size;
            all->seen.outcomes = all->outcomes;
            return &all->seen;
        }
        acker_outcomes_free(&all->seen);
        if (!others) return NULL;
    }
}

int acker_take(acker_client *client, const acker_outcomes *handled, acker_error *error) {
    const list *all = (const list *)handled;
    for (size_t at = 0; at < all->count;) {
        acker_text args[1 + MAX_TAKE] = {acker_str(all->task)};
        unsigned shard = all->entries[at].shard;
        size_t count = 0;
        while (count < MAX_TAKE && at + count < all->count &&
               all->entries[at + count].shard == shard) {
            const redisReply *id = all->entries[at + count].reply->element[0];
            args[++count].data = id->str;
            args[count].size = id->len;
        }
        redisReply *reply = acker_run(client, TAKE, shard, 1 + count, args, error);
        if (!reply) return -1;
        /* take processes only some of large entries, and replies how many it has examined. */
        long long looked = reply->type == REDIS_REPLY_ARRAY && reply->elements == 4
                               ? reply->element[3]->integer
                               : 0;
        freeReplyObject(reply);
        if (looked < 1 || (size_t)looked > count) return spoilt(error);
        at += (size_t)looked;
    }
    return 0;
}
