/*
 * acker: take part in tuple trees that are counted in Redis.
 *
 * A source tracks a tree, bolts ack and fail its messages, and the source reads the verdict. What
 * goes over the wire, and what must hold, is stated in lua/README.md of acker-redis.
 *
 * Functions return 0, or -1 and an error; those that return a pointer, NULL and an error. The error
 * may be NULL. One thread at a time may use a client, and what belongs to it. When memory is used
 * up, the process is aborted: half a batch must not be sent.
 */
#ifndef ACKER_H
#define ACKER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ACKER_API __attribute__((visibility("default")))
#else
#define ACKER_API
#endif

/* What went wrong. */
typedef struct acker_error {
    /* That of the script (lua/README.md, Errors), such as "BACKLOG", "CONFLICT", "NAMESPACE", or
     *   "REFUSED"      a row, text or setting that cannot be; nothing was sent
     *   "REJECTED"     the acker has nacked the tree at once: emit nothing of it
     *   "UNAVAILABLE"  no answer came in time; the batch may have been applied
     *   "LATE"         the fence may be gone: the batch may not be sent again, let its trees expire
     *   "LANE"         the lane is at a higher number: something has copied this process
     *   "CLOSED"       this message was acked or failed before
     *   "REDIS"        Redis has answered with any other error
     */
    char code[16];
    char words[320];
} acker_error;

/* Text by its length in bytes: UTF-8 without control bytes. */
typedef struct acker_text {
    const char *data;
    size_t size;
} acker_text;

static inline acker_text acker_str(const char *text) {
    acker_text found = {text, strlen(text)};
    return found;
}

/* --- Ids: of anchors 1 .. 2^62-1, of tuples and edges 1 .. 2^63-1 --- */

/* Draw ids of tuples from the system's random source. */
ACKER_API int acker_new_ids(uint64_t *ids, size_t count, acker_error *error);
/* Draw an anchor of a loose tree. */
ACKER_API int acker_new_anchor(uint64_t *anchor, acker_error *error);
/* Read decimal digits; refuses what 64 bits do not hold, and signs. */
ACKER_API int acker_parse_id(acker_text text, uint64_t *id, acker_error *error);
/* Number of a block from its source's own identity: the same parts, the same number. */
ACKER_API uint64_t acker_block_number(const acker_text *identity, size_t count);
/* Anchor of a tree in a block, in slot 0 .. 4094. */
static inline uint64_t acker_block_anchor(uint64_t block, unsigned slot) {
    return UINT64_C(1) << 62 | block << 12 | slot;
}
/* Bytes that acker_format writes at most, with the 0 at the end. */
#define ACKER_ID_SIZE 42
/* Text of a message's id in one tree, "<anchor>:<tuple>", to be sent with it; its length. */
ACKER_API size_t acker_format(uint64_t anchor, uint64_t tuple, char *text);

/* --- Batches: rows, folded per anchor; at most 1024 anchors, 64 blocks, 64 KiB of texts --- */

typedef struct acker_batch acker_batch;

/* The task is the source that tracks in it; NULL or "" if no tree begins. Never NULL for those. */
ACKER_API acker_batch *acker_batch_new(const char *task, acker_error *error);
ACKER_API void acker_batch_free(acker_batch *batch);
/* Rows, after folding. */
ACKER_API size_t acker_batch_size(const acker_batch *batch);

/* Each refuses what cannot be, and the batch is then as it was. */

/* A tree begins: the source's own id for it, and the ids of all its first messages. */
ACKER_API int acker_batch_track(acker_batch *batch, uint64_t anchor, acker_text source_id,
                                const uint64_t *emitted, size_t count, acker_error *error);
/* A block of trees begins: for each slot the XOR of the ids of its first messages, or 0. */
ACKER_API int acker_batch_track_block(acker_batch *batch, uint64_t block, acker_text label,
                                      const uint64_t *deltas, size_t count, acker_error *error);
/* A message was processed; emitted are the ids of all messages that it caused. */
ACKER_API int acker_batch_ack(acker_batch *batch, uint64_t anchor, uint64_t tuple,
                              const uint64_t *emitted, size_t count, acker_error *error);
/* The tree failed, and why: up to 255 bytes. */
ACKER_API int acker_batch_fail(acker_batch *batch, uint64_t anchor, acker_text why,
                               acker_error *error);
/* It failed by a message that counts as processed: a block waits for those of its failed trees too.
 */
ACKER_API int acker_batch_fail_processed(acker_batch *batch, uint64_t anchor, acker_text why,
                                         uint64_t tuple, const uint64_t *emitted, size_t count,
                                         acker_error *error);
/* More time is needed. */
ACKER_API int acker_batch_touch(acker_batch *batch, uint64_t anchor, acker_error *error);

/* --- A client of one namespace --- */

typedef struct acker_client acker_client;

typedef struct acker_options {
    int cluster;          /* the nodes are some of a cluster's */
    const char *user;     /* NULL: none */
    const char *password; /* NULL: none */
    unsigned database;    /* 0 in a cluster */
    unsigned timeout_ms;  /* for connecting, and for each reply */
    /* For how long a batch is sent again that was not answered, or refused with BACKLOG: -1 for as
     * long as its fence holds, which is the longest in any case; 0: it is sent once. */
    int64_t retry_ms;
    /* How long rows wait for others that may join them; looked at in each call, see acker_poll. */
    int64_t linger_ms;
    unsigned lanes; /* batches in flight at most, 1 to 64 */
    /* Hears of each batch that was given up, but not of those of acker_apply and acker_track: its
     * trees expire. It must not use the client. */
    void (*on_given_up)(void *context, const acker_error *error, const uint64_t *anchors,
                        size_t count);
    void *context;
} acker_options;

#define ACKER_OPTIONS {0, NULL, NULL, 0, 5000, -1, 2, 2, NULL, NULL}

/* Nodes are "host:port", joined by commas, or the path of a socket. Options NULL are ACKER_OPTIONS.
 * Redis is not asked yet; the namespace has to be there when rows are sent. */
ACKER_API acker_client *acker_open(const char *nodes, const char *namespace_,
                                   const acker_options *options, acker_error *error);
/* Drops what was not flushed: its trees expire. */
ACKER_API void acker_close(acker_client *client);

typedef struct acker_applied {
    long long tracked, acked, failed;
    int repeated; /* of a call whose first reply was lost, the counts and the rejected are missing
                   */
    /* Anchors, and numbers of blocks, that were nacked for overflow: emit nothing of them. They
     * belong to the batch. */
    const uint64_t *rejected;
    size_t rejected_count;
    const uint64_t *rejected_blocks;
    size_t rejected_blocks_count;
} acker_applied;

/* Send a batch and wait until it is applied. After "UNAVAILABLE" it may have been applied: apply
 * the same batch again, or free it, and its trees expire. */
ACKER_API int acker_apply(acker_client *client, acker_batch *batch, acker_applied *applied,
                          acker_error *error);
/* Send a batch, which is the client's from now on, and do not wait for its answer, but for a free
 * lane; see acker_flush. */
ACKER_API int acker_send(acker_client *client, acker_batch *batch, acker_error *error);

/* As those of a batch, into one that is sent when it is full, or when linger_ms are over. */
ACKER_API int acker_ack(acker_client *client, uint64_t anchor, uint64_t tuple,
                        const uint64_t *emitted, size_t count, acker_error *error);
ACKER_API int acker_fail(acker_client *client, uint64_t anchor, acker_text why, acker_error *error);
ACKER_API int acker_touch(acker_client *client, uint64_t anchor, acker_error *error);
/* Send what has lingered for long enough; ms until it is to be called again, -1 if nothing waits.
 */
ACKER_API int64_t acker_poll(acker_client *client);
/* Send all, and wait until it is answered. The error is that of the first batch that was given up
 * since the last flush. */
ACKER_API int acker_flush(acker_client *client, acker_error *error);

/* --- Sources --- */

/* Begin a tree of so many first messages, whose ids are drawn, and wait until it is applied; then
 * send them. None: it is complete at once. With "REJECTED" emit nothing. After any other error it
 * may be there: track anew, and pass over verdicts of anchors that are not known. Who does not know
 * yet how many there are tracks one, and processes that one itself. */
ACKER_API int acker_track(acker_client *client, const char *task, acker_text source_id,
                          uint64_t *anchor, uint64_t *ids, size_t count, acker_error *error);
/* Begin a block of trees, and wait likewise. Its number is derived from task and label: label each
 * attempt. */
ACKER_API int acker_track_block(acker_client *client, const char *task, acker_text label,
                                const uint64_t *deltas, size_t count, uint64_t *block,
                                acker_error *error);

typedef struct acker_outcome {
    const char *verdict; /* "ack": complete; "nack": replay it; "touch": its clock was set back */
    const char *reason;  /* completed, failed, expired, overflow, conflict or reset */
    uint64_t anchor;
    acker_text source_id; /* of a tree in a block its label; text ends with a 0 */
    acker_text why;       /* likewise */
    int64_t age_ms;
} acker_outcome;

typedef struct acker_outcomes {
    size_t count;
    const acker_outcome *outcomes;
} acker_outcomes;

/* Verdicts that wait for a task: up to so many entries a shard, 1 to 64, the oldest first. */
ACKER_API acker_outcomes *acker_read(acker_client *client, const char *task, unsigned entries,
                                     acker_error *error);
/* Delete what was read, once all of it was handled; what was not taken is read again. */
ACKER_API int acker_take(acker_client *client, const acker_outcomes *handled, acker_error *error);
ACKER_API void acker_outcomes_free(acker_outcomes *outcomes);

typedef struct acker_tree {
    int age; /* of its bucket in ticks: 0 is the newest; as buckets: it expires just now */
    int buckets;
    uint64_t checksum;
    int failed;
    char task[65];       /* "": it was not tracked yet */
    char source_id[256]; /* of a tree in a block the label */
    char why[256];
} acker_tree;

/* What is known of a tree: 1, or 0 if it is not pending. */
ACKER_API int acker_show(acker_client *client, uint64_t anchor, acker_tree *tree,
                         acker_error *error);

/* --- Bolts --- */

typedef struct acker_processing acker_processing;

/* Begin to process messages, by the texts of their ids: one, or several for a join. */
ACKER_API acker_processing *acker_process(acker_client *client, const acker_text *messages,
                                          size_t count, acker_error *error);
/* Text of the id of a message that these inputs caused, by their places; NULL: all. Send one
 * message with it. To be freed by free(). */
ACKER_API char *acker_emit(acker_processing *processing, const size_t *places, size_t count,
                           acker_error *error);
/* They were processed; emit before. The rows are in the client's batch then. */
ACKER_API int acker_processed(acker_processing *processing, acker_error *error);
/* They failed, and with them their trees, and why: of the words what a row can hold. */
ACKER_API int acker_process_failed(acker_processing *processing, acker_text why,
                                   acker_error *error);
/* More time is needed. */
ACKER_API int acker_process_touch(acker_processing *processing, acker_error *error);
ACKER_API void acker_processing_free(acker_processing *processing);

#ifdef __cplusplus
}
#endif
#endif
