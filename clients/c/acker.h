/*
 * acker: take part in tuple trees that Redis counts.
 *
 * A source tracks a tree, bolts ack and fail its messages, and the source reads the verdict.
 * lua/README.md of acker-redis describes the wire protocol and its rules.
 *
 * A function returns 0, or -1 and an error; a function that returns a pointer returns NULL and an
 * error. The error argument may be NULL. A client, and objects made with it, must not be used by
 * several threads at the same time. If memory is exhausted, the process is aborted, because half a
 * batch must not be sent.
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

/* An error of this library. */
typedef struct acker_error {
    /* A code of the scripts (lua/README.md, Errors), such as "BACKLOG", "CONFLICT", "NAMESPACE", or
     *   "REFUSED"      a row, text or setting is invalid; nothing was sent
     *   "REJECTED"     the tree was nacked immediately: emit none of its messages
     *   "UNAVAILABLE"  no reply came in time; the batch may have been applied
     *   "LATE"         the fence may have expired, so the batch may not be sent again: let its
     *                  trees expire
     *   "LANE"         the lane is at a higher number: another process uses it, such as a copy of
     *                  this one
     *   "CLOSED"       this message was already acked or failed
     *   "REDIS"        Redis replied with any other error
     */
    char code[16];
    char words[320];
    /* With "REDIS": whether Redis refused the call for a cause that may pass, such as a password that
     * is being changed (1), or a full memory (2). Nothing was changed: the same batch may be applied
     * again. */
    int may_pass;
} acker_error;

/* Text with its length in bytes: UTF-8 without control bytes. */
typedef struct acker_text {
    const char *data;
    size_t size;
} acker_text;

static inline acker_text acker_str(const char *text) {
    acker_text found = {text, strlen(text)};
    return found;
}

/* --- Ids: anchors 1 .. 2^62-1, tuples and edges 1 .. 2^63-1 --- */

/* Draw tuple ids of 63 random bits from the system's random source. In a namespace with edges use
 * acker_draw_ids. */
ACKER_API int acker_new_ids(uint64_t *ids, size_t count, acker_error *error);
/* Draw the anchor of a loose tree. */
ACKER_API int acker_new_anchor(uint64_t *anchor, acker_error *error);
/* Parse decimal digits; refuse signs and numbers of more than 64 bits. */
ACKER_API int acker_parse_id(acker_text text, uint64_t *id, acker_error *error);
/* Return the anchor of a tree in a block; the slot is 0 .. 4094. */
static inline uint64_t acker_block_anchor(uint64_t block, unsigned slot) {
    return UINT64_C(1) << 62 | block << 12 | slot;
}
/* Maximum bytes that acker_format writes, including the terminating 0. */
#define ACKER_ID_SIZE 42
/* Write the text of a message's id in one tree, "<anchor>:<tuple>"; return its length. Send the
 * text along with the message. */
ACKER_API size_t acker_format(uint64_t anchor, uint64_t tuple, char *text);

/* --- Batches: rows, folded per anchor; at most 1024 anchors, 64 blocks, 64 KiB of texts --- */

typedef struct acker_batch acker_batch;

/* Return a new batch. The task is the source that tracks in it; NULL or "" if it tracks nothing,
 * for which the function never returns NULL. */
ACKER_API acker_batch *acker_batch_new(const char *task, acker_error *error);
ACKER_API void acker_batch_free(acker_batch *batch);
/* Return the number of rows after folding. */
ACKER_API size_t acker_batch_size(const acker_batch *batch);

/* The functions below refuse invalid input and leave the batch unchanged. */

/* Begin a tree, with the source's id for it and the ids of all its first messages. */
ACKER_API int acker_batch_track(acker_batch *batch, uint64_t anchor, acker_text source_id,
                                const uint64_t *emitted, size_t count, acker_error *error);
/* Begin a block of trees: for each the XOR of the ids of its first messages, or 0 for a tree
 * without messages, which is complete. The source chooses the number; acker_track_block derives
 * it. The label must not end in @ and a number, because labels of Spark do. */
ACKER_API int acker_batch_track_block(acker_batch *batch, uint64_t block, acker_text label,
                                      const uint64_t *deltas, size_t count, acker_error *error);
/* Ack a processed message; emitted are the ids of all messages that it caused. */
ACKER_API int acker_batch_ack(acker_batch *batch, uint64_t anchor, uint64_t tuple,
                              const uint64_t *emitted, size_t count, acker_error *error);
/* Fail a tree; why has at most 255 bytes. */
ACKER_API int acker_batch_fail(acker_batch *batch, uint64_t anchor, acker_text why,
                               acker_error *error);
/* Fail a tree by a message that counts as processed: a block also waits for the messages of its
 * failed trees. */
ACKER_API int acker_batch_fail_processed(acker_batch *batch, uint64_t anchor, acker_text why,
                                         uint64_t tuple, const uint64_t *emitted, size_t count,
                                         acker_error *error);
/* Reset the timeout of a tree. */
ACKER_API int acker_batch_touch(acker_batch *batch, uint64_t anchor, acker_error *error);

/* --- A client of one namespace --- */

typedef struct acker_client acker_client;

typedef struct acker_options {
    int cluster;          /* whether the nodes are some of a cluster's */
    const char *user;     /* or NULL */
    const char *password; /* or NULL */
    unsigned database;    /* 0 in a cluster */
    unsigned timeout_ms;  /* timeout of connecting, and of each reply */
    /* How long a batch is retried that got no reply or was refused with BACKLOG. -1: as long as its
     * fence holds, which is the upper limit in any case; 0: a batch is sent once. A refusal that may
     * pass is retried in the same way. */
    int64_t retry_ms;
    /* How long rows wait for others to join them; checked in each call, see acker_poll. */
    int64_t linger_ms;
    unsigned lanes; /* maximum batches in flight, 1 to 64 */
    /* Called for each batch that was given up, except those of acker_apply and acker_track: its
     * trees expire. The function must not use the client. */
    void (*on_given_up)(void *context, const acker_error *error, const uint64_t *anchors,
                        size_t count);
    void *context;
} acker_options;

#define ACKER_OPTIONS {0, NULL, NULL, 0, 5000, -1, 2, 2, NULL, NULL}

/* Return a client. Nodes are "host:port", joined by commas, or the path of a socket. Options NULL
 * means ACKER_OPTIONS. Nothing is sent; the namespace must exist when the first rows are sent. */
ACKER_API acker_client *acker_open(const char *nodes, const char *namespace_,
                                   const acker_options *options, acker_error *error);
/* Close the client and drop the rows that were not flushed: their trees expire. */
ACKER_API void acker_close(acker_client *client);

typedef struct acker_applied {
    long long tracked, acked, failed;
    int repeated; /* whether a call was a repeat whose first reply was lost: its counts and its
                     rejected trees are missing */
    /* Anchors of trees, and numbers of blocks, that were nacked for overflow: emit none of their
     * messages. The arrays belong to the batch. */
    const uint64_t *rejected;
    size_t rejected_count;
    const uint64_t *rejected_blocks;
    size_t rejected_blocks_count;
} acker_applied;

/* Send a batch and wait until it is applied. After "UNAVAILABLE" the batch may have been applied:
 * apply the same batch again, or free it, and its trees expire. */
ACKER_API int acker_apply(acker_client *client, acker_batch *batch, acker_applied *applied,
                          acker_error *error);
/* Send a batch and do not wait for its reply, only for a free lane; see acker_flush. The client
 * owns the batch from now on. */
ACKER_API int acker_send(acker_client *client, acker_batch *batch, acker_error *error);

/* Send the rows that have lingered; return the ms until the next call is due, or -1 if no row
 * waits. */
ACKER_API int64_t acker_poll(acker_client *client);
/* Send all rows, and wait for the replies. The error is that of the first batch that was given up
 * since the last flush. */
ACKER_API int acker_flush(acker_client *client, acker_error *error);

/* --- Sources --- */

/* Draw distinct tuple ids for messages that travel on an edge of the namespace; edge NULL or ""
 * means none. The first call reads the configuration. */
ACKER_API int acker_draw_ids(acker_client *client, const char *edge, uint64_t *ids, size_t count,
                             acker_error *error);
/* Begin a tree, draw the ids of its count first messages, which travel on an edge (NULL or "": none),
 * and wait until it is applied. Then send the messages; with count 0 the tree is complete immediately. After "REJECTED" send none of them.
 * After any other error the tree may exist: track again, and ignore verdicts of unknown anchors. A
 * source that does not know the number of messages in advance tracks one message and processes it
 * itself. */
ACKER_API int acker_track(acker_client *client, const char *task, acker_text source_id,
                          const char *edge, uint64_t *anchor, uint64_t *ids, size_t count,
                          acker_error *error);
/* Begin a block of trees, and wait until it is applied. The block's number is derived from the salt
 * of the namespace, task and label: a program that runs again tracks the same block. Use another
 * label for each attempt. */
ACKER_API int acker_track_block(acker_client *client, const char *task, acker_text label,
                                const uint64_t *deltas, size_t count, uint64_t *block,
                                acker_error *error);

/* From lua/spec.json, by python -m proof.spec */
enum { ACKER_MAX_EDGES = 8 };

typedef struct acker_outcome {
    const char *verdict; /* "ack": complete; "nack": replay it; "touch": its timeout was reset */
    const char *reason;  /* completed, failed, expired, overflow, conflict or reset */
    uint64_t anchor;
    acker_text source_id; /* for a tree in a block, the block's label; data is 0-terminated */
    acker_text why;       /* 0-terminated, too */
    int64_t age_ms;
    /* Of an expired tree; otherwise "" and 0. */
    const char *cause; /* "idle" (no row came for long enough) or "deadline" */
    uint64_t residual; /* XOR of the ids of the outstanding messages; 0 if it is unknown */
    int64_t idle_ms;   /* since its last row; in a block, the block's last, to within a tick */
    const char *edges[ACKER_MAX_EDGES]; /* those with an odd number of outstanding messages */
    size_t edges_count;
} acker_outcome;

typedef struct acker_outcomes {
    size_t count;
    const acker_outcome *outcomes;
} acker_outcomes;

/* Read the waiting verdicts of a task, oldest first; entries (1 to 64) is the maximum per shard. */
ACKER_API acker_outcomes *acker_read(acker_client *client, const char *task, unsigned entries,
                                     acker_error *error);
/* Delete the verdicts that were read and handled; verdicts that were not taken are read again. */
ACKER_API int acker_take(acker_client *client, const acker_outcomes *handled, acker_error *error);
ACKER_API void acker_outcomes_free(acker_outcomes *outcomes);

/* --- Bolts --- */

typedef struct acker_processing acker_processing;

/* Begin to process messages, given by their ids as text: one, or several for a join. */
ACKER_API acker_processing *acker_process(acker_client *client, const acker_text *messages,
                                          size_t count, acker_error *error);
typedef struct acker_child {
    /* The edge (queue, topic, table) that the message travels on; NULL or "": none. If its tree
     * expires because the message is missing, the outcome names the edge. While Redis does not
     * answer since the program began, messages have no edge, and a key waits for the answer. */
    const char *edge;
    /* Any bytes. The id is derived from them and the inputs: the same inputs, processed again, give
     * the message the same id. Each child needs another key. data NULL: a random id. */
    acker_text key;
} acker_child;

/* Return the id, as text, of a new message that these inputs caused, by their places; places NULL
 * means all, child NULL no edge and a random id. Send one message with it, and free() it. */
ACKER_API char *acker_emit(acker_processing *processing, const size_t *places, size_t count,
                           const acker_child *child, acker_error *error);
/* Ack the messages; emit first. The rows are then in the client's batch. */
ACKER_API int acker_processed(acker_processing *processing, acker_error *error);
/* Fail the messages and their trees; why is cut to 255 bytes. */
ACKER_API int acker_process_failed(acker_processing *processing, acker_text why,
                                   acker_error *error);
/* Reset the timeout of the trees. */
ACKER_API int acker_process_touch(acker_processing *processing, acker_error *error);
ACKER_API void acker_processing_free(acker_processing *processing);

#ifdef __cplusplus
}
#endif
#endif
