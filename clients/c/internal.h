/* Declarations shared by the files of this library and its driver; not for users. */
#ifndef ACKER_INTERNAL_H
#define ACKER_INTERNAL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "acker.h"

/* From lua/spec.json, by python -m proof.spec */
enum { TRACK = 1, FAIL = 2, TOUCH = 4 };
enum { MAX_SHARDS = 1024, MIN_BUCKETS = 2, MAX_BUCKETS = 16, MAX_NAME = 64, EDGE_BIT = 55 };
enum { MAX_ROWS = 1024, MAX_TEXTS = 64 * 1024, MAX_TEXT = 255, MAX_TAKE = 64 };
enum { MAX_BLOCKS = 64, MAX_CALL = 1024 * 1024, MAX_SLOTS = 4095 };
enum { MAX_MESSAGE = 65536, MAX_TREES = 1638 };

#define ANCHOR_MAX (UINT64_MAX >> 2)
#define TUPLE_MAX (UINT64_MAX >> 1)
#define BLOCK_MAX ((UINT64_C(1) << 50) - 1)

/* A text in a batch's buffer. */
typedef struct span {
    uint32_t at, size;
} span;

typedef struct row {
    uint64_t anchor, delta;
    span source, why;
    uint8_t flags;
} row;

typedef struct block {
    uint64_t number;
    span label;
    uint64_t *deltas;
    size_t slots;
} block;

typedef struct call {
    struct call *next;
    redisReply *reply;
    bool done;
} call;

/* One call of a script, which is applied completely or not at all, under its own number. */
typedef struct part {
    bool in_blocks;
    unsigned shard;
    size_t argc, ids_count;
    const char **argv; /* the first 7 are EVALSHA, sha, 2, two keys, producer, fence */
    size_t *sizes;
    char *data;
    uint64_t *ids; /* anchors or block numbers, which the rejected rows of the reply index */
    char digest[33], fence[64], keys[2][112];
    uint64_t seq;

    call call;
    struct node *node;
    bool flying, doubt, before, answered;
    int64_t first; /* when the call was first sent, ns; 0: not yet */
    long long tracked, acked, failed;
    bool repeated;
} part;

enum { HEAD = 7 };

/* The packed calls of a batch; while they exist, the batch accepts no rows. */
typedef struct sent {
    char lane[129];
    unsigned shards;
    int64_t fence; /* how long the batch may be retried, in ns */
    part *parts;
    size_t count;
    uint64_t *rejected, *rejected_blocks;
    size_t rejected_count, rejected_blocks_count;
} sent;

struct acker_batch {
    char task[65];
    row *rows;
    size_t size, room;
    uint16_t *places; /* hash table by anchor: index in rows plus 1, or 0 */
    size_t places_count;
    block *blocks;
    size_t blocks_count;
    char *texts;
    size_t texts_size, texts_room;
    sent *sent;
};

typedef struct acker_id {
    uint64_t anchor, tuple;
} acker_id;

/* The named edges of a namespace. */
typedef struct edge_list {
    char names[ACKER_MAX_EDGES][MAX_NAME + 1];
    unsigned count;
} edge_list;

/* What the ids of a namespace depend on. */
typedef struct id_maker {
    edge_list edges;
    char salt[33];   /* a secret: never show or log it; "" if it is unknown: ids have no code then */
    char **unlisted; /* edges that were warned of */
    size_t unlisted_count;
} id_maker;

void *acker_alloc(size_t size);
void *acker_more(void *old, size_t size);
char *acker_copy(const char *text);
int acker_say(acker_error *error, const char *code, const char *words, ...)
    __attribute__((format(printf, 3, 4)));
void acker_sha256(const char *const *data, const size_t *sizes, size_t count, uint8_t *digest);
void acker_hex(const uint8_t *bytes, size_t count, char *hex);
/* Write the shape of a text that may contain ids, for an error: # stands for a digit. Errors reach
 * logs, and an id is enough to ack its message. */
enum { ACKER_SHAPE = 51 };
const char *acker_shape(acker_text text, char shape[ACKER_SHAPE]);
int acker_random(void *bytes, size_t count, acker_error *error);
/* Read the names of edges, joined by commas; return -1 if they are invalid. */
int acker_read_edges(acker_text names, edge_list *found);
/* Set the names of the edges whose bit is set in a checksum; return their number. */
size_t acker_edges_of(const edge_list *its, uint64_t checksum, const char **names);
/* Return the bit of an edge in the ids of its messages; 0 for no edge, and for one that is not
 * listed, which is printed once. */
uint64_t acker_code(id_maker *its, const char *edge);
/* Draw random ids without a code, none of them 0. */
int acker_draw(const id_maker *its, uint64_t *ids, size_t count, acker_error *error);
/* Derive an edge id without a code, maybe 0, for each input of a child with a key. Attempt n is 0,
 * or higher if the ids cancelled. */
int acker_derive(const id_maker *its, acker_text key, unsigned n, const acker_text *inputs,
                 size_t count, uint64_t *ids, acker_error *error);
/* Derive the number of a block. */
int acker_derive_block(const id_maker *its, acker_text task, acker_text label, uint64_t *block,
                       acker_error *error);
void acker_id_maker_free(id_maker *its);
int acker_check_name(const char *kind, const char *name, size_t size, acker_error *error);
int acker_check_text(const char *kind, acker_text text, size_t least, acker_error *error);
acker_text acker_clip(acker_text words, char *to);
/* Check the label and the deltas of a block. */
int acker_check_block(acker_text label, const uint64_t *deltas, size_t count, acker_error *error);
int acker_check_anchor(uint64_t anchor, acker_error *error);
int acker_xor(const uint64_t *ids, size_t count, uint64_t *delta, acker_error *error);
int acker_whole(uint64_t tuple, const uint64_t *ids, size_t count, uint64_t *delta,
                acker_error *error);
unsigned acker_shard_of(uint64_t anchor, unsigned shards);
int acker_batch_add(acker_batch *batch, uint64_t anchor, uint64_t delta, uint8_t flags,
                    acker_text why, acker_error *error);
bool acker_batch_full(const acker_batch *batch);
part *acker_parts(acker_batch *batch, unsigned shards, size_t *count);
void acker_parts_free(part *parts, size_t count);
void acker_put64(uint8_t *to, uint64_t value);
uint64_t acker_get64(const char *from);

/* Pack a batch under a given lane, number and digest, and send it once. Only for the cases. */
int acker_apply_under(acker_client *client, acker_batch *batch, const char *producer, uint64_t seq,
                      const char *digest, acker_applied *applied, acker_error *error);

/* Functions of client.c for the other files. */
int acker_put(acker_client *client, const acker_id *rows, size_t count, uint8_t flags,
              acker_text why, acker_error *error);
redisReply *acker_run(acker_client *client, int script, unsigned shard, size_t count,
                      const acker_text *args, acker_error *error);
redisReply *acker_command(acker_client *client, unsigned shard, size_t count,
                          const acker_text *args, acker_error *error);
int acker_shards(acker_client *client, bool fresh, unsigned *shards, unsigned *buckets,
                 acker_error *error);
/* Return the maker of the namespace's ids, from the cached configuration. */
id_maker *acker_ids(acker_client *client, acker_error *error);
/* Return what makes the ids of a message's children. If the configuration is not known, it is read
 * once, and while Redis does not answer, ids are made that are right in any namespace. Derived ids
 * wait for the salt. */
id_maker *acker_maker(acker_client *client, bool derived, acker_error *error);
void acker_prefix(const acker_client *client, unsigned shard, char *prefix);
enum { APPLY, APPLY_BLOCKS, SHOW, STATUS, TAKE };

/* --- JSON as written by the scripts and drivers --- */

typedef struct json {
    enum {
        JSON_NULL,
        JSON_TRUE,
        JSON_FALSE,
        JSON_NUMBER,
        JSON_STRING,
        JSON_LIST,
        JSON_OBJECT
    } kind;
    acker_text text;    /* of a string (unescaped) or a number; 0-terminated */
    struct json *items; /* of a list; of an object: name, value, .. */
    size_t count;
} json;

/* Parse JSON; return NULL if it is invalid. */
json *acker_json(const char *text, size_t size);
void acker_json_free(json *value);
/* Return a field of an object, or NULL if it does not exist. */
const json *acker_json_get(const json *object, const char *name);

#endif
