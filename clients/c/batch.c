/* Checks of ids and texts, rows, batches, and their bytes on the wire. No I/O. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

void *acker_alloc(size_t size) {
    return acker_more(NULL, size ? size : 1);
}

void *acker_more(void *old, size_t size) {
    void *found = realloc(old, size);
    if (!found) {
        fputs("acker: out of memory\n", stderr);
        abort();
    }
    return found;
}

char *acker_copy(const char *text) {
    return text ? strcpy(acker_alloc(strlen(text) + 1), text) : NULL;
}

int acker_say(acker_error *error, const char *code, const char *words, ...) {
    if (error) {
        va_list args;
        snprintf(error->code, sizeof error->code, "%s", code);
        error->may_pass = 0;
        va_start(args, words);
        vsnprintf(error->words, sizeof error->words, words, args);
        va_end(args);
    }
    return -1;
}

#define refuse(...) acker_say(error, "REFUSED", __VA_ARGS__)

void acker_put64(uint8_t *to, uint64_t value) {
    for (int i = 7; i >= 0; i--, value >>= 8) to[i] = (uint8_t)value;
}

uint64_t acker_get64(const char *from) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | (uint8_t)from[i];
    return value;
}

void acker_hex(const uint8_t *bytes, size_t count, char *hex) {
    for (size_t i = 0; i < count; i++) {
        hex[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    hex[2 * count] = 0;
}

/* --- Ids --- */

const char *acker_shape(acker_text text, char shape[ACKER_SHAPE]) {
    size_t size = text.size < ACKER_SHAPE - 1 ? text.size : ACKER_SHAPE - 1;
    for (size_t i = 0; i < size; i++) {
        shape[i] = text.data[i] >= '0' && text.data[i] <= '9' ? '#' : text.data[i];
    }
    shape[size] = 0;
    return shape;
}

int acker_parse_id(acker_text text, uint64_t *id, acker_error *error) {
    uint64_t found = 0;
    bool good = text.size > 0;
    for (size_t i = 0; good && i < text.size; i++) {
        unsigned digit = (unsigned)(unsigned char)text.data[i] - '0';
        good = digit < 10 && found <= (UINT64_MAX - digit) / 10;
        found = 10 * found + digit;
    }
    if (!good) {
        char shape[ACKER_SHAPE];
        return refuse("an id is a decimal number of up to 64 bits, not '%s'",
                      acker_shape(text, shape));
    }
    *id = found;
    return 0;
}

size_t acker_format(uint64_t anchor, uint64_t tuple, char *text) {
    return (size_t)snprintf(text, ACKER_ID_SIZE, "%llu:%llu", (unsigned long long)anchor,
                            (unsigned long long)tuple);
}

int acker_check_anchor(uint64_t anchor, acker_error *error) {
    if (anchor - 1 < ANCHOR_MAX || (anchor >> 62 == 1 && (anchor & 0xfff) < MAX_SLOTS)) return 0;
    return refuse("an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree, "
                  "not %llu",
                  (unsigned long long)anchor);
}

static int check_tuple(uint64_t id, acker_error *error) {
    if (id - 1 < TUPLE_MAX) return 0;
    return refuse("a tuple id is a number from 1 to 2^63-1, not %llu", (unsigned long long)id);
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int acker_xor(const uint64_t *ids, size_t count, uint64_t *delta, acker_error *error) {
    bool twice = false;
    *delta = 0;
    for (size_t i = 0; i < count; i++) {
        if (check_tuple(ids[i], error)) return -1;
        *delta ^= ids[i];
        if (count <= 16) {
            for (size_t k = 0; k < i; k++) twice |= ids[k] == ids[i];
        }
    }
    if (count > 16) {
        uint64_t *sorted = acker_alloc(count * sizeof *sorted);
        memcpy(sorted, ids, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, ascending);
        for (size_t i = 1; i < count; i++) twice |= sorted[i] == sorted[i - 1];
        free(sorted);
    }
    /* Two messages with the same id would cancel. */
    return twice ? refuse("two messages have the same tuple id; draw an id for each") : 0;
}

int acker_whole(uint64_t tuple, const uint64_t *ids, size_t count, uint64_t *delta,
                acker_error *error) {
    if (check_tuple(tuple, error)) return -1;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] == tuple) {
            return refuse("a message and one that it caused have the same id; draw another");
        }
    }
    if (acker_xor(ids, count, delta, error)) return -1;
    *delta ^= tuple;
    return 0;
}

unsigned acker_shard_of(uint64_t anchor, unsigned shards) {
    return (unsigned)((anchor > ANCHOR_MAX ? anchor >> 12 : anchor) & (shards - 1));
}

static uint64_t block_of(uint64_t anchor) {
    return anchor >> 12 & BLOCK_MAX;
}

static unsigned slot_of(uint64_t anchor) {
    return (unsigned)(anchor & 0xfff);
}

/* --- Texts --- */

int acker_check_name(const char *kind, const char *name, size_t size, acker_error *error) {
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (size < 1 || size > MAX_NAME || strspn(name, good) != size) {
        return refuse("a %s is 1 to 64 characters of A-Z a-z 0-9 _ . -, not '%.70s'", kind, name);
    }
    return 0;
}

/* Return the length of the UTF-8 sequence at the beginning; 0 if it is invalid. */
static size_t sequence(const unsigned char *s, size_t left) {
    unsigned c = s[0], low = 0x80, high = 0xbf;
    size_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    if (size > left) return 0;
    for (size_t i = 1; i < size; i++, low = 0x80, high = 0xbf) {
        if (s[i] < low || s[i] > high) return 0;
    }
    return size;
}

int acker_check_text(const char *kind, acker_text text, size_t least, acker_error *error) {
    const unsigned char *s = (const unsigned char *)text.data;
    if (text.size < least || text.size > MAX_TEXT) {
        return refuse("a %s has %zu to %d bytes, this one %zu", kind, least, MAX_TEXT, text.size);
    }
    for (size_t i = 0, some; i < text.size; i += some) {
        if (s[i] < 0x20 || s[i] == 0x7f) {
            return refuse("a %s must not contain control characters", kind);
        }
        if (!(some = sequence(s + i, text.size - i))) {
            return refuse("a %s must be valid UTF-8", kind);
        }
    }
    return 0;
}

/* Write a text as a why, into 256 bytes: cut to 255 bytes, with control characters replaced. */
acker_text acker_clip(acker_text words, char *to) {
    size_t size = 0;
    for (size_t i = 0, some; i < words.size; i += some) {
        const unsigned char *s = (const unsigned char *)words.data + i;
        some = sequence(s, words.size - i);
        size_t more = some ? some : 1;
        if (size + more > MAX_TEXT) break;
        if (!some || *s < 0x20 || *s == 0x7f) {
            to[size] = some ? ' ' : '?';
            some = 1;
        } else {
            memcpy(to + size, s, some);
        }
        size += more;
    }
    acker_text found = {to, size};
    return found;
}

/* --- Batches --- */

acker_batch *acker_batch_new(const char *task, acker_error *error) {
    if (task && *task && acker_check_name("task", task, strlen(task), error)) return NULL;
    acker_batch *batch = acker_alloc(sizeof *batch);
    memset(batch, 0, sizeof *batch);
    if (task) strcpy(batch->task, task);
    return batch;
}

void acker_parts_free(part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(parts[i].argv);
        free(parts[i].sizes);
        free(parts[i].data);
        free(parts[i].ids);
        if (parts[i].flying && parts[i].call.reply) freeReplyObject(parts[i].call.reply);
    }
    free(parts);
}

void acker_batch_free(acker_batch *batch) {
    if (!batch) return;
    if (batch->sent) {
        acker_parts_free(batch->sent->parts, batch->sent->count);
        free(batch->sent->rejected);
        free(batch->sent->rejected_blocks);
        free(batch->sent);
    }
    for (size_t i = 0; i < batch->blocks_count; i++) free(batch->blocks[i].deltas);
    free(batch->blocks);
    free(batch->rows);
    free(batch->places);
    free(batch->texts);
    free(batch);
}

size_t acker_batch_size(const acker_batch *batch) {
    return batch->size;
}

bool acker_batch_full(const acker_batch *batch) {
    return batch->size >= MAX_ROWS || batch->texts_size > MAX_TEXTS - MAX_TEXT;
}

/* Return the index of an anchor in the table, or of the place where it belongs. */
static size_t place(const acker_batch *batch, uint64_t anchor) {
    size_t last = batch->places_count - 1;
    size_t at = (size_t)(anchor * UINT64_C(0x9e3779b97f4a7c15) >> 40) & last;
    while (batch->places[at] && batch->rows[batch->places[at] - 1].anchor != anchor) {
        at = (at + 1) & last;
    }
    return at;
}

static row *find(const acker_batch *batch, uint64_t anchor) {
    if (!batch->places_count) return NULL;
    unsigned found = batch->places[place(batch, anchor)];
    return found ? &batch->rows[found - 1] : NULL;
}

static block *find_block(const acker_batch *batch, uint64_t number) {
    for (size_t i = 0; i < batch->blocks_count; i++) {
        if (batch->blocks[i].number == number) return &batch->blocks[i];
    }
    return NULL;
}

static int room(const acker_batch *batch, size_t rows, size_t texts, acker_error *error) {
    if (batch->sent) return refuse("this batch was already sent; add new rows to a new batch");
    if (batch->size + rows > MAX_ROWS || batch->texts_size + texts > MAX_TEXTS) {
        return refuse("a batch has at most %d rows and %d bytes of texts; apply this one and begin "
                      "another",
                      MAX_ROWS, MAX_TEXTS);
    }
    return 0;
}

static span keep(acker_batch *batch, acker_text text) {
    span found = {(uint32_t)batch->texts_size, (uint32_t)text.size};
    if (batch->texts_size + text.size > batch->texts_room) {
        batch->texts_room = 2 * (batch->texts_size + text.size);
        batch->texts = acker_more(batch->texts, batch->texts_room);
    }
    if (text.size) memcpy(batch->texts + found.at, text.data, text.size);
    batch->texts_size += text.size;
    return found;
}

/* Return the row of an anchor, and check that texts bytes of text fit; NULL for invalid input. */
static row *fold(acker_batch *batch, uint64_t anchor, size_t texts, acker_error *error) {
    row *its = find(batch, anchor);
    if (room(batch, !its, texts, error)) return NULL;
    if (its) return its;
    if (acker_check_anchor(anchor, error)) return NULL;
    if (anchor > ANCHOR_MAX) {
        block *tracked = find_block(batch, block_of(anchor));
        if (tracked && slot_of(anchor) >= tracked->slots) {
            refuse("block %llu has %zu trees, but no slot %u", (unsigned long long)tracked->number,
                   tracked->slots, slot_of(anchor));
            return NULL;
        }
    }
    if (2 * batch->size >= batch->places_count) {
        batch->places_count = batch->places_count ? 4 * batch->places_count : 16;
        batch->places = acker_more(batch->places, batch->places_count * sizeof *batch->places);
        memset(batch->places, 0, batch->places_count * sizeof *batch->places);
        for (size_t i = 0; i < batch->size; i++) {
            batch->places[place(batch, batch->rows[i].anchor)] = (uint16_t)(i + 1);
        }
    }
    if (batch->size == batch->room) {
        batch->room = batch->room ? 4 * batch->room : 8;
        batch->rows = acker_more(batch->rows, batch->room * sizeof *batch->rows);
    }
    its = &batch->rows[batch->size];
    memset(its, 0, sizeof *its);
    its->anchor = anchor;
    /* place() compares anchors of rows, so set the row first. */
    size_t at = place(batch, anchor);
    batch->places[at] = (uint16_t)++batch->size;
    return its;
}

static int needs_task(const acker_batch *batch, acker_error *error) {
    return *batch->task ? 0 : refuse("a TRACK row needs a source: use acker_batch_new(task)");
}

int acker_batch_track(acker_batch *batch, uint64_t anchor, acker_text source_id,
                      const uint64_t *emitted, size_t count, acker_error *error) {
    uint64_t delta;
    if (needs_task(batch, error) || acker_check_text("source id", source_id, 1, error) ||
        acker_check_anchor(anchor, error) || acker_xor(emitted, count, &delta, error)) {
        return -1;
    }
    if (anchor > ANCHOR_MAX) {
        return refuse("anchor %llu is in a block; track the whole block by "
                      "acker_batch_track_block()",
                      (unsigned long long)anchor);
    }
    row *its = find(batch, anchor);
    if (its && its->flags & TRACK) {
        return refuse("anchor %llu is tracked twice; draw a new anchor for each attempt",
                      (unsigned long long)anchor);
    }
    if (!(its = fold(batch, anchor, source_id.size, error))) return -1;
    its->source = keep(batch, source_id);
    its->delta ^= delta;
    its->flags |= TRACK;
    return 0;
}

/* Return the number of digits of the number at the end of a text: at most `most`, without leading
 * zeros; 0 if there is none. */
static size_t number_at_end(const char *text, size_t size, size_t most) {
    size_t at = size;
    while (at && text[at - 1] >= '0' && text[at - 1] <= '9') at--;
    return size - at > most || (size - at > 1 && text[at] == '0') ? 0 : size - at;
}

/* Return whether a label ends in @ and a number, perhaps followed by ~ and the number of an
 * attempt: the slots of such a block of Spark are consecutive records. */
static bool of_spark(acker_text label) {
    const char *text = label.data;
    size_t size = label.size, count = number_at_end(text, size, 10);
    if (count && count < size && text[size - count - 1] == '~' && text[size - count] != '0') {
        size -= count + 1;
    }
    count = number_at_end(text, size, 19);
    return count && count < size && text[size - count - 1] == '@';
}

int acker_check_block(acker_text label, const uint64_t *deltas, size_t count, acker_error *error) {
    if (acker_check_text("label", label, 1, error)) return -1;
    if (of_spark(label)) {
        return refuse("label '%.*s' ends in @ and a number, as only labels of Spark do; use "
                      "another",
                      (int)label.size, label.data);
    }
    if (count < 1 || count > MAX_SLOTS) {
        return refuse("a block has 1 to %d trees, not %zu", MAX_SLOTS, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (deltas[i] > TUPLE_MAX) {
            return refuse("a delta is a number from 0 to 2^63-1, not %llu",
                          (unsigned long long)deltas[i]);
        }
    }
    return 0;
}

int acker_batch_track_block(acker_batch *batch, uint64_t number, acker_text label,
                            const uint64_t *deltas, size_t count, acker_error *error) {
    if (needs_task(batch, error) || acker_check_block(label, deltas, count, error)) return -1;
    if (number > BLOCK_MAX) {
        return refuse("a block is a number from 0 to 2^50-1, not %llu", (unsigned long long)number);
    }
    if (find_block(batch, number)) {
        return refuse("block %llu is tracked twice; use another number for each attempt",
                      (unsigned long long)number);
    }
    for (size_t i = 0; i < batch->size; i++) {
        uint64_t anchor = batch->rows[i].anchor;
        if (anchor > ANCHOR_MAX && block_of(anchor) == number && slot_of(anchor) >= count) {
            return refuse("this batch has a row of slot %u, but block %llu has only %zu trees",
                          slot_of(anchor), (unsigned long long)number, count);
        }
    }
    if (batch->blocks_count == MAX_BLOCKS) {
        return refuse("a batch tracks at most %d blocks; apply this one and begin another",
                      MAX_BLOCKS);
    }
    if (room(batch, 0, label.size, error)) return -1;
    if (!batch->blocks) batch->blocks = acker_alloc(MAX_BLOCKS * sizeof *batch->blocks);
    block *its = &batch->blocks[batch->blocks_count++];
    its->number = number;
    its->label = keep(batch, label);
    its->slots = count;
    its->deltas = acker_alloc(count * sizeof *deltas);
    memcpy(its->deltas, deltas, count * sizeof *deltas);
    return 0;
}

/* Fold in a whole row. */
int acker_batch_add(acker_batch *batch, uint64_t anchor, uint64_t delta, uint8_t flags,
                    acker_text why, acker_error *error) {
    if (flags & FAIL) {
        if (acker_check_text("why", why, 0, error)) return -1;
        row *said = find(batch, anchor);
        if (said && said->why.size) why.size = 0; /* the first why wins */
    } else {
        why.size = 0;
    }
    row *its = fold(batch, anchor, why.size, error);
    if (!its) return -1;
    if (why.size) its->why = keep(batch, why);
    its->delta ^= delta;
    its->flags |= flags;
    return 0;
}

int acker_batch_ack(acker_batch *batch, uint64_t anchor, uint64_t tuple, const uint64_t *emitted,
                    size_t count, acker_error *error) {
    uint64_t delta;
    if (acker_whole(tuple, emitted, count, &delta, error)) return -1;
    return acker_batch_add(batch, anchor, delta, 0, acker_str(""), error);
}

int acker_batch_fail(acker_batch *batch, uint64_t anchor, acker_text why, acker_error *error) {
    return acker_batch_add(batch, anchor, 0, FAIL, why, error);
}

int acker_batch_fail_processed(acker_batch *batch, uint64_t anchor, acker_text why, uint64_t tuple,
                               const uint64_t *emitted, size_t count, acker_error *error) {
    uint64_t delta;
    if (acker_whole(tuple, emitted, count, &delta, error)) return -1;
    return acker_batch_add(batch, anchor, delta, FAIL, why, error);
}

int acker_batch_touch(acker_batch *batch, uint64_t anchor, acker_error *error) {
    return acker_batch_add(batch, anchor, 0, TOUCH, acker_str(""), error);
}

/* --- Packing --- */

static void argument(part *its, const void *data, size_t size) {
    its->argv[its->argc] = data;
    its->sizes[its->argc++] = size;
}

static void begin_part(part *its, bool in_blocks, unsigned shard, size_t args, size_t ids) {
    memset(its, 0, sizeof *its);
    its->in_blocks = in_blocks;
    its->shard = shard;
    its->argv = acker_alloc((HEAD + args) * sizeof *its->argv);
    its->sizes = acker_alloc((HEAD + args) * sizeof *its->sizes);
    its->ids = acker_alloc(ids * sizeof *its->ids);
    its->argc = HEAD;
}

static void end_part(part *its) {
    size_t count = its->argc - HEAD;
    const char **data = acker_alloc(2 * count * sizeof *data);
    size_t *sizes = acker_alloc(2 * count * sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        /* The size of each argument is hashed, too: equal bytes that are split differently have
         * different digests. */
        data[2 * i] = (const char *)&its->sizes[HEAD + i];
        sizes[2 * i] = sizeof *its->sizes;
        data[2 * i + 1] = its->argv[HEAD + i];
        sizes[2 * i + 1] = its->sizes[HEAD + i];
    }
    uint8_t digest[32];
    acker_sha256(data, sizes, 2 * count, digest);
    acker_hex(digest, 8, its->digest);
    free(data);
    free(sizes);
}

static void pack_loose(part *its, const acker_batch *batch, unsigned shard, row *const *rows,
                       size_t count) {
    size_t tracks = 0, fails = 0;
    for (size_t i = 0; i < count; i++) {
        tracks += (rows[i]->flags & TRACK) != 0;
        fails += (rows[i]->flags & FAIL) != 0;
    }
    begin_part(its, false, shard, 4 + tracks + fails, count);
    uint8_t *data = acker_alloc(17 * count), *anchors = data + count, *deltas = anchors + 8 * count;
    its->data = (char *)data;
    for (size_t i = 0; i < count; i++) {
        data[i] = rows[i]->flags;
        acker_put64(anchors + 8 * i, rows[i]->anchor);
        acker_put64(deltas + 8 * i, rows[i]->delta);
        its->ids[its->ids_count++] = rows[i]->anchor;
    }
    argument(its, data, count);
    argument(its, anchors, 8 * count);
    argument(its, deltas, 8 * count);
    argument(its, batch->task, tracks ? strlen(batch->task) : 0);
    for (size_t i = 0; tracks && i < count; i++) {
        span text = rows[i]->source;
        if (rows[i]->flags & TRACK) argument(its, batch->texts + text.at, text.size);
    }
    for (size_t i = 0; fails && i < count; i++) {
        span text = rows[i]->why;
        if (rows[i]->flags & FAIL)
            argument(its, text.size ? batch->texts + text.at : "", text.size);
    }
    end_part(its);
}

typedef struct rows_of_block {
    uint64_t number;
    const block *tracked;
    row **rows;
    size_t count, size; /* number of rows, and bytes on the wire */
} rows_of_block;

static int by_anchor(const void *a, const void *b) {
    return ascending(&(*(row *const *)a)->anchor, &(*(row *const *)b)->anchor);
}

static size_t size_of_block(const acker_batch *batch, const rows_of_block *its) {
    size_t size = 9;
    if (its->tracked) {
        size += 3 + strlen(batch->task) + its->tracked->label.size + 8 * its->tracked->slots;
    }
    for (size_t i = 0; i < its->count; i++) {
        if (its->rows[i]->delta && !its->tracked) size += 10;
        if (its->rows[i]->flags & FAIL) size += 3 + its->rows[i]->why.size;
    }
    return size;
}

static uint8_t *put_slot(uint8_t *to, unsigned slot) {
    to[0] = (uint8_t)(slot >> 8);
    to[1] = (uint8_t)slot;
    return to + 2;
}

/* Write the seven arguments of a block from `to` on; return where they end. */
static uint8_t *pack_block(part *part, const acker_batch *batch, const rows_of_block *its,
                           uint8_t *to) {
    uint8_t *flags = to, *header = to + 9, *slots, *deltas, *failed;
    *flags = its->tracked ? TRACK : 0;
    acker_put64(to + 1, its->number);
    slots = header;
    if (its->tracked) {
        size_t task = strlen(batch->task);
        slots = put_slot(slots, (unsigned)its->tracked->slots);
        *slots++ = (uint8_t)task;
        memcpy(slots, batch->task, task);
        memcpy(slots + task, batch->texts + its->tracked->label.at, its->tracked->label.size);
        slots += task + its->tracked->label.size;
    }
    deltas = slots;
    for (size_t i = 0; i < its->count; i++) {
        *flags |= its->rows[i]->flags & TOUCH;
        if (its->rows[i]->delta && !its->tracked) {
            deltas = put_slot(deltas, slot_of(its->rows[i]->anchor));
        }
    }
    failed = deltas;
    if (its->tracked) {
        for (size_t i = 0; i < its->tracked->slots; i++, failed += 8) {
            acker_put64(failed, its->tracked->deltas[i]);
        }
        for (size_t i = 0; i < its->count; i++) {
            uint8_t *at = deltas + 8 * slot_of(its->rows[i]->anchor);
            acker_put64(at, acker_get64((char *)at) ^ its->rows[i]->delta);
        }
    } else {
        for (size_t i = 0; i < its->count; i++) {
            if (!its->rows[i]->delta) continue;
            acker_put64(failed, its->rows[i]->delta);
            failed += 8;
        }
    }
    uint8_t *end = failed;
    for (size_t i = 0; i < its->count; i++) {
        span why = its->rows[i]->why;
        if (!(its->rows[i]->flags & FAIL)) continue;
        end = put_slot(end, slot_of(its->rows[i]->anchor));
        *end++ = (uint8_t)why.size;
        if (why.size) memcpy(end, batch->texts + why.at, why.size);
        end += why.size;
    }
    argument(part, flags, 1);
    argument(part, to + 1, 8);
    argument(part, header, (size_t)(slots - header));
    argument(part, "", 0); /* present: each slot holds a tree */
    argument(part, slots, (size_t)(deltas - slots));
    argument(part, deltas, (size_t)(failed - deltas));
    argument(part, failed, (size_t)(end - failed));
    part->ids[part->ids_count++] = its->number;
    return end;
}

/* Pack the blocks of a shard into the fewest calls. The limits of a batch keep a call below the
 * other limits on rows and texts. */
static size_t pack_blocks(part *parts, const acker_batch *batch, unsigned shard,
                          rows_of_block **blocks, size_t count) {
    size_t made = 0, from = 0;
    while (from < count) {
        size_t to = from, size = 0;
        while (to < count && to - from < MAX_BLOCKS &&
               (to == from || size + blocks[to]->size <= MAX_CALL)) {
            size += blocks[to++]->size;
        }
        part *its = &parts[made++];
        begin_part(its, true, shard, 7 * (to - from), to - from);
        uint8_t *at = acker_alloc(size);
        its->data = (char *)at;
        for (; from < to; from++) at = pack_block(its, batch, blocks[from], at);
        end_part(its);
    }
    return made;
}

/* Return the calls to send: the loose rows of each shard, then its blocks. */
part *acker_parts(acker_batch *batch, unsigned shards, size_t *count) {
    size_t loose = 0, n = 0, most = batch->blocks_count + batch->size;
    row **rows = acker_alloc(batch->size * sizeof *rows);
    bool *taken = acker_alloc(batch->size + 1);
    rows_of_block *blocks = acker_alloc(most * sizeof *blocks);
    rows_of_block **some = acker_alloc(most * sizeof *some);
    part *parts = acker_alloc((2 * batch->size + batch->blocks_count + 1) * sizeof *parts);
    memset(taken, 0, batch->size + 1);
    *count = 0;
    for (size_t i = 0; i < batch->blocks_count; i++) {
        rows_of_block its = {batch->blocks[i].number, &batch->blocks[i], NULL, 0, 0};
        blocks[n++] = its;
    }
    for (size_t i = 0; i < batch->size; i++) {
        row *one = &batch->rows[i];
        if (one->anchor <= ANCHOR_MAX) {
            loose++;
            continue;
        }
        size_t at = 0;
        while (at < n && blocks[at].number != block_of(one->anchor)) at++;
        if (at == n) {
            rows_of_block its = {block_of(one->anchor), NULL, NULL, 0, 0};
            blocks[n++] = its;
        }
        if (!blocks[at].rows) blocks[at].rows = acker_alloc(batch->size * sizeof(row *));
        blocks[at].rows[blocks[at].count++] = one;
    }
    for (size_t i = 0; loose && i < batch->size; i++) {
        if (taken[i] || batch->rows[i].anchor > ANCHOR_MAX) continue;
        unsigned shard = acker_shard_of(batch->rows[i].anchor, shards);
        size_t its = 0;
        for (size_t k = i; k < batch->size; k++) {
            uint64_t anchor = batch->rows[k].anchor;
            if (anchor > ANCHOR_MAX || acker_shard_of(anchor, shards) != shard) continue;
            taken[k] = true;
            rows[its++] = &batch->rows[k];
        }
        pack_loose(&parts[(*count)++], batch, shard, rows, its);
    }
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].count > 1) qsort(blocks[i].rows, blocks[i].count, sizeof(row *), by_anchor);
        blocks[i].size = size_of_block(batch, &blocks[i]);
    }
    memset(taken, 0, batch->size + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned shard = (unsigned)(blocks[i].number & (shards - 1));
        size_t its = 0, before = 0;
        while (before < i && (blocks[before].number & (shards - 1)) != shard) before++;
        if (before < i) continue; /* the blocks of this shard are already packed */
        for (size_t k = i; k < n; k++) {
            if ((blocks[k].number & (shards - 1)) == shard) some[its++] = &blocks[k];
        }
        *count += pack_blocks(parts + *count, batch, shard, some, its);
    }
    for (size_t i = 0; i < n; i++) free(blocks[i].rows);
    free(rows);
    free(taken);
    free(blocks);
    free(some);
    return acker_more(parts, (*count ? *count : 1) * sizeof *parts);
}
