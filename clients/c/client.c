/* The client: connections, lanes, and retries. The wire protocol: lua/README.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "scripts.h"

#define MS INT64_C(1000000)
#define FOREVER (INT64_C(3153600000) * 1000 * MS) /* a hundred years */
enum { SLOTS = 16384, MAX_HOPS = 8, MAX_LANES = 64 };
static const int64_t FIRST_PAUSE = 50 * MS, LONGEST_PAUSE = 500 * MS, PATIENCE = 10000 * MS;
static const int64_t IDS_RETRY = 2000 * MS; /* until the next attempt to read edges and salt */

/* One server. Replies come in the order of the calls; the queue holds the calls without a reply. */
typedef struct node {
    struct node *next;
    char *address;
    redisContext *redis;
    call *first, **last;
} node;

/* A lane: a random producer name, which is drawn once, increasing numbers, one batch in flight. */
typedef struct lane {
    char name[33]; /* "": not drawn yet */
    uint64_t seq;
    acker_batch *batch; /* in flight */
    uint64_t turn;      /* order of sending: the oldest batch is awaited first */
    int64_t end;
    uint64_t *anchors; /* only for on_given_up */
} lane;

typedef struct open_batch {
    acker_batch *batch;
    int64_t due;
} open_batch;

struct acker_client {
    acker_options options;
    char namespace_[65];
    char *user, *password;
    pid_t pid;

    node *nodes;
    node *slots[SLOTS]; /* of a cluster */
    bool stale;

    bool known;
    unsigned shards, buckets;
    int64_t fence;
    bool reshard;
    id_maker ids;
    int64_t ids_due; /* of the next attempt to read edges and salt, after a first one; else 0 */

    lane lanes[MAX_LANES];
    uint64_t turns;
    open_batch *open; /* by shard */
    unsigned open_count;
    int64_t due; /* of the batch that is due first; 0: no batch is open */
    acker_error failed;
};

static int64_t now_ns(void) {
    struct timespec at;
#ifdef CLOCK_BOOTTIME
    clock_gettime(CLOCK_BOOTTIME, &at); /* also counts while the machine sleeps, as fences do */
#else
    clock_gettime(CLOCK_MONOTONIC, &at);
#endif
    return at.tv_sec * INT64_C(1000000000) + at.tv_nsec;
}

static bool is(const acker_error *error, const char *code) {
    return strcmp(error->code, code) == 0;
}

static int pass_on(acker_error *error, const acker_error *said) {
    if (error) *error = *said;
    return -1;
}

/* --- Connections --- */

static node *node_at(acker_client *client, const char *address, size_t size) {
    for (node *one = client->nodes; one; one = one->next) {
        if (strlen(one->address) == size && !memcmp(one->address, address, size)) return one;
    }
    node *made = acker_alloc(sizeof *made);
    memset(made, 0, sizeof *made);
    made->address = acker_alloc(size + 1);
    memcpy(made->address, address, size);
    made->address[size] = 0;
    made->last = &made->first;
    node **end = &client->nodes;
    while (*end) end = &(*end)->next;
    return *end = made;
}

/* Close a connection; its waiting calls get no reply. */
static void hang_up(node *one) {
    for (call *its = one->first; its; its = its->next) its->done = true;
    one->first = NULL;
    one->last = &one->first;
    if (one->redis) redisFree(one->redis);
    one->redis = NULL;
}

static int unavailable(acker_error *error, const node *one, const char *words) {
    return acker_say(error, "UNAVAILABLE",
                     "Redis at %.80s did not answer: %.120s; is it running and reachable?",
                     one->address, words);
}

static int write_all(int fd, const char *data, size_t size) {
    while (size) {
        /* Without MSG_NOSIGNAL, as in hiredis, SIGPIPE would end the process. */
        ssize_t some = send(fd, data, size, MSG_NOSIGNAL);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return -1;
        data += some;
        size -= (size_t)some;
    }
    return 0;
}

static int transmit(node *one, call *its, int argc, const char **argv, const size_t *sizes,
                    acker_error *error) {
    char *words = NULL;
    int size = redisFormatCommandArgv(&words, argc, argv, sizes);
    memset(its, 0, sizeof *its);
    if (size < 0) abort();
    int wrote = write_all(one->redis->fd, words, (size_t)size);
    int why = errno;
    redisFreeCommand(words);
    if (wrote) {
        unavailable(error, one, why == EAGAIN ? "it accepts no data" : strerror(why));
        hang_up(one);
        return -1;
    }
    *one->last = its;
    one->last = &its->next;
    return 0;
}

/* Wait for the reply of a call that was sent; NULL if there is none. */
static redisReply *await(node *one, call *its, acker_error *error) {
    while (!its->done) {
        void *reply = NULL;
        call *next = one->first;
        if (redisGetReply(one->redis, &reply) != REDIS_OK) {
            bool waited = one->redis->err == REDIS_ERR_IO && errno == EAGAIN;
            unavailable(error, one, waited ? "no reply came in time" : one->redis->errstr);
            hang_up(one);
            return NULL;
        }
        if (!(one->first = next->next)) one->last = &one->first;
        next->reply = reply;
        next->done = true;
    }
    if (!its->reply) unavailable(error, one, "the connection was lost");
    return its->reply;
}

/* Send a command on a new connection, and wait for +OK. */
static int greet(node *one, int argc, const char **argv, acker_error *error) {
    call its;
    if (transmit(one, &its, argc, argv, NULL, error)) return -1;
    redisReply *reply = await(one, &its, error);
    if (!reply) return -1;
    bool good = reply->type != REDIS_REPLY_ERROR,
         passes = !good && !strncmp(reply->str, "LOADING", 7);
    if (!good) {
        acker_say(error, passes ? "UNAVAILABLE" : "REDIS", "Redis at %.80s refused %s: %.120s",
                  one->address, argv[0], reply->str);
        if (error) error->may_pass = !strncmp(reply->str, "WRONGPASS", 9);
    }
    freeReplyObject(reply);
    return good ? 0 : -1;
}

static int dial(acker_client *client, node *one, acker_error *error) {
    if (one->redis) return 0;
    struct timeval wait = {client->options.timeout_ms / 1000,
                           client->options.timeout_ms % 1000 * 1000};
    const char *colon = strrchr(one->address, ':');
    if (*one->address == '/') {
        one->redis = redisConnectUnixWithTimeout(one->address, wait);
    } else {
        char *host = acker_alloc(strlen(one->address) + 1);
        strcpy(host, one->address);
        host[colon - one->address] = 0;
        one->redis = redisConnectWithTimeout(host, atoi(colon + 1), wait);
        free(host);
    }
    if (!one->redis || one->redis->err || redisSetTimeout(one->redis, wait) != REDIS_OK) {
        unavailable(error, one, one->redis ? one->redis->errstr : "out of memory");
        hang_up(one);
        return -1;
    }
    redisEnableKeepAlive(one->redis);
    char number[16];
    snprintf(number, sizeof number, "%u", client->options.database);
    const char *auth[3] = {"AUTH", client->user ? client->user : client->password,
                           client->password};
    const char *choose[2] = {"SELECT", number};
    if ((client->password && greet(one, client->user ? 3 : 2, auth, error)) ||
        (client->options.database && greet(one, 2, choose, error))) {
        hang_up(one);
        return -1;
    }
    return 0;
}

/* Send a command to a node; the caller awaits its reply later. */
static int issue(acker_client *client, node *one, bool asking, call *its, int argc,
                 const char **argv, const size_t *sizes, acker_error *error) {
    static const char *words[1] = {"ASKING"};
    call extra;
    if (dial(client, one, error)) return -1;
    if (asking) {
        if (transmit(one, &extra, 1, words, NULL, error)) return -1;
        redisReply *reply = await(one, &extra, error);
        if (!reply) return -1;
        freeReplyObject(reply);
    }
    return transmit(one, its, argc, argv, sizes, error);
}

/* Return the text of an error reply, without the prefix of Redis 6.2 for errors inside a script. */
static const char *words_of(const redisReply *reply) {
    const char *words = reply->str, *at = strstr(words, "Error running script ");
    bool in_script = at && at - words <= 4;
    while (in_script && (at = strstr(at, ": "))) {
        at += 2;
        const char *code = at + (*at == '-');
        size_t size = strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (size && code[size] == ' ') return code;
    }
    return words;
}

/* Return whether an error reply begins with one of these codes. */
static bool has_code(const char *words, const char *codes) {
    size_t size = strcspn(words, " ");
    for (const char *at = codes; *at; at += strcspn(at, "|"), at += *at == '|') {
        if (size == strcspn(at, "|") && !strncmp(words, at, size)) return true;
    }
    return false;
}

/* From acker_redis/protocol/codes.py, by python -m proof.spec */
/* Transient states: start-up, failover, a migrating slot, a long script, a full disk. */
static const char passing[] =
    "MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF";
/* Refusals that may pass: memory is freed, a password or a right changes. */
static const char patient[] = "OOM|NOAUTH|WRONGPASS|NOPERM";
/* Only a new connection can succeed: to another master, or with another password. */
static const char demoted[] =
    "LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS";

/* Connect again after the reply of a master that was replaced, or may be soon: the address may lead
 * to another master by now, and only a new connection detects that. Only a new one authenticates. */
static void leave_demoted(node *one, const redisReply *reply) {
    if (has_code(words_of(reply), demoted)) hang_up(one);
}

/* --- Clusters --- */

static unsigned slot_of(const char *key) {
    const char *from = strchr(key, '{'), *to = from ? strchr(from, '}') : NULL;
    uint16_t crc = 0;
    if (!to || to == from + 1) {
        from = key - 1;
        to = key + strlen(key);
    }
    while (++from < to) {
        crc ^= (uint16_t)((unsigned char)*from << 8);
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
        }
    }
    return crc % SLOTS;
}

/* Return the node of an address; an empty host means the host of the node that replied. */
static node *node_said(acker_client *client, const node *by, const char *host, size_t size,
                       const char *port) {
    char address[300];
    const char *colon = strrchr(by->address, ':');
    if (!size && colon) {
        host = by->address;
        size = (size_t)(colon - host);
    }
    int made =
        snprintf(address, sizeof address, "%.*s:%s", (int)(size < 255 ? size : 255), host, port);
    return node_at(client, address, (size_t)made);
}

static int read_slots(acker_client *client, node *from, acker_error *error) {
    static const char *words[2] = {"CLUSTER", "SLOTS"};
    node **found = acker_alloc(SLOTS * sizeof *found);
    memset(found, 0, SLOTS * sizeof *found);
    call asked;
    redisReply *reply = NULL;
    if (!issue(client, from, false, &asked, 2, words, NULL, error)) {
        reply = await(from, &asked, error);
    }
    bool good = reply && reply->type == REDIS_REPLY_ARRAY;
    for (size_t i = 0; good && i < reply->elements; i++) {
        redisReply *range = reply->element[i], *master;
        good = range->type == REDIS_REPLY_ARRAY && range->elements >= 3 &&
               range->element[2]->type == REDIS_REPLY_ARRAY && range->element[2]->elements >= 2;
        if (!good) break;
        long long first = range->element[0]->integer, last = range->element[1]->integer;
        master = range->element[2];
        char port[24];
        snprintf(port, sizeof port, "%lld", master->element[1]->integer);
        size_t size = master->element[0]->type == REDIS_REPLY_STRING ? master->element[0]->len : 0;
        node *its = node_said(client, from, master->element[0]->str, size, port);
        for (long long slot = first; slot >= 0 && slot <= last && slot < SLOTS; slot++) {
            found[slot] = its;
        }
    }
    if (reply && !good) {
        acker_say(error, reply->type == REDIS_REPLY_ERROR ? "REDIS" : "UNAVAILABLE",
                  "CLUSTER SLOTS of %.80s: %.120s", from->address,
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "the reply cannot be parsed");
    }
    if (reply) freeReplyObject(reply);
    if (good) {
        memcpy(client->slots, found, SLOTS * sizeof *found);
        client->stale = false;
    }
    free(found);
    return good ? 0 : -1;
}

static node *node_of(acker_client *client, unsigned slot, acker_error *error) {
    if (!client->options.cluster) return client->nodes;
    if (!client->stale && client->slots[slot]) return client->slots[slot];
    for (node *one = client->nodes; one; one = one->next) {
        if (read_slots(client, one, error)) continue;
        if (client->slots[slot]) return client->slots[slot];
        acker_say(error, "UNAVAILABLE", "no node of the cluster serves slot %u", slot);
    }
    return NULL;
}

/* Send a command to the node of a slot, or start with the reply that came from `one`. Follow MOVED,
 * ASK and NOSCRIPT, which mean that nothing ran. Return NULL if there is no reply. */
static redisReply *ask(acker_client *client, unsigned slot, node *one, redisReply *reply,
                       int script, int argc, const char **argv, size_t *sizes, acker_error *error) {
    bool asking = false;
    if (!one && !(one = node_of(client, slot, error))) return NULL;
    for (int hop = 0; hop < MAX_HOPS; hop++) {
        call its;
        if (!reply && !issue(client, one, asking, &its, argc, argv, sizes, error)) {
            reply = await(one, &its, error);
        }
        if (!reply) {
            client->stale = true; /* the node may have failed over */
            return NULL;
        }
        if (reply->type != REDIS_REPLY_ERROR) return reply;
        bool moved = !strncmp(reply->str, "MOVED ", 6), asked = !strncmp(reply->str, "ASK ", 4);
        if (client->options.cluster && (moved || asked)) {
            const char *address = strrchr(reply->str, ' ') + 1, *colon = strrchr(address, ':');
            if (!colon) return reply;
            one = node_said(client, one, address, (size_t)(colon - address), colon + 1);
            asking = asked;
            if (moved) {
                client->slots[slot] = one;
                client->stale = true;
            }
        } else if (script >= 0 && !strncmp(reply->str, "NOSCRIPT", 8)) {
            argv[0] = "EVAL";
            sizes[0] = 4;
            argv[1] = scripts[script].source;
            sizes[1] = scripts[script].size;
            script = -1;
        } else {
            leave_demoted(one, reply);
            return reply;
        }
        freeReplyObject(reply);
        reply = NULL;
    }
    acker_say(error, "UNAVAILABLE", "too many redirections for slot %u", slot);
    return NULL;
}

/* --- Calls of scripts --- */

void acker_prefix(const acker_client *client, unsigned shard, char *prefix) {
    snprintf(prefix, 112, "acker:{%s:%u}", client->namespace_, shard);
}

/* Set the error for an error reply. */
static int translate(const redisReply *reply, acker_error *error) {
    const char *words = words_of(reply);
    /* Commands of the script before one that lacks a right may have run. */
    bool in_script = strstr(words, "The user executing the script can't ") != NULL;
    if (!strncmp(words, "ACKER ", 6)) {
        size_t size = strcspn(words + 6, " ");
        char code[16];
        snprintf(code, sizeof code, "%.*s", (int)(size < 15 ? size : 15), words + 6);
        return acker_say(error, code, "%s", words + 6 + size + (words[6 + size] != 0));
    }
    if (has_code(words, passing) ||
        !strncmp(words, "ERR max number of clients reached", 33)) {
        return acker_say(error, "UNAVAILABLE", "Redis cannot run the call now: %.200s", words);
    }
    if (!strncmp(words, "OOM", 3)) {
        acker_say(error, "REDIS",
                  "Redis is at maxmemory and refused the call; nothing was changed. Raise "
                  "maxmemory, lower high_water, or let the sources take their outcomes");
        if (error) error->may_pass = 2;
        return -1;
    }
    acker_say(error, "REDIS", "Redis refused the call: %.200s", words);
    if (error) error->may_pass = has_code(words, patient) && !in_script;
    return -1;
}

static redisReply *checked(redisReply *reply, acker_error *error) {
    if (reply && reply->type == REDIS_REPLY_ERROR) {
        translate(reply, error);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

/* In a forked child, drop all of the parent's connections, lanes and waiting rows. */
static void check_fork(acker_client *client) {
    if (client->pid == getpid()) return;
    client->pid = getpid();
    for (node *one = client->nodes; one; one = one->next) hang_up(one);
    for (unsigned i = 0; i < MAX_LANES; i++) {
        acker_batch_free(client->lanes[i].batch);
        memset(&client->lanes[i], 0, sizeof client->lanes[i]);
    }
    for (unsigned i = 0; i < client->open_count; i++) {
        acker_batch_free(client->open[i].batch);
        client->open[i].batch = NULL;
    }
    client->due = 0;
    memset(&client->failed, 0, sizeof client->failed);
}

redisReply *acker_run(acker_client *client, int script, unsigned shard, size_t count,
                      const acker_text *args, acker_error *error) {
    char prefix[112], meta[120];
    check_fork(client);
    acker_prefix(client, shard, prefix);
    snprintf(meta, sizeof meta, "%s:meta", prefix);
    const char *argv[5 + 65] = {"EVALSHA", scripts[script].sha, "2", prefix, meta};
    size_t sizes[5 + 65] = {7, 40, 1, strlen(prefix), strlen(meta)};
    for (size_t i = 0; i < count; i++) {
        argv[5 + i] = args[i].data;
        sizes[5 + i] = args[i].size;
    }
    return checked(
        ask(client, slot_of(prefix), NULL, NULL, script, (int)(5 + count), argv, sizes, error),
        error);
}

redisReply *acker_command(acker_client *client, unsigned shard, size_t count,
                          const acker_text *args, acker_error *error) {
    char prefix[112];
    const char *argv[8];
    size_t sizes[8];
    check_fork(client);
    acker_prefix(client, shard, prefix);
    for (size_t i = 0; i < count; i++) {
        argv[i] = args[i].data;
        sizes[i] = args[i].size;
    }
    return checked(ask(client, slot_of(prefix), NULL, NULL, -1, (int)count, argv, sizes, error),
                   error);
}

/* Wait, longer each time, but not beyond the limit. */
static void rest(int64_t *pause, int64_t limit) {
    int64_t wait = *pause / 2 + now_ns() / 1000 % (*pause / 2), left = limit - now_ns();
    if (left < wait) wait = left;
    struct timespec time = {wait / 1000000000, wait % 1000000000};
    if (wait > 0) nanosleep(&time, NULL);
    if ((*pause *= 2) > LONGEST_PAUSE) *pause = LONGEST_PAUSE;
}

static bool number(const redisReply *meta, const char *name, int64_t most, int64_t *value) {
    for (size_t i = 0; i + 1 < meta->elements; i += 2) {
        const redisReply *field = meta->element[i], *its = meta->element[i + 1];
        if (field->type != REDIS_REPLY_STRING || strcmp(field->str, name)) continue;
        uint64_t found;
        acker_text text = {its->str, its->type == REDIS_REPLY_STRING ? its->len : 0};
        if (acker_parse_id(text, &found, NULL) || found > (uint64_t)INT64_MAX) return false;
        *value = (int64_t)found < most ? (int64_t)found : most;
        return true;
    }
    return false;
}

/* Return a field of the configuration; "" if it is missing. */
static acker_text text(const redisReply *meta, const char *name) {
    for (size_t i = 0; i + 1 < meta->elements; i += 2) {
        const redisReply *field = meta->element[i], *its = meta->element[i + 1];
        if (field->type != REDIS_REPLY_STRING || its->type != REDIS_REPLY_STRING) continue;
        if (strcmp(field->str, name)) continue;
        acker_text found = {its->str, its->len};
        return found;
    }
    return acker_str("");
}

/* Read the current configuration from shard 0, once. */
static int read_config(acker_client *client, acker_error *error) {
    redisReply *reply = acker_run(client, STATUS, 0, 0, NULL, error);
    if (!reply) return -1;
    int64_t shards = 0, buckets = 0, tick = 0;
    edge_list edges;
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements >= 6 &&
                reply->element[5]->type == REDIS_REPLY_ARRAY &&
                number(reply->element[5], "shards", 1 << 20, &shards) &&
                number(reply->element[5], "buckets", 1 << 20, &buckets) &&
                number(reply->element[5], "tick_ms", FOREVER / MS / 16, &tick) && shards > 0 &&
                shards <= MAX_SHARDS && !(shards & (shards - 1)) && buckets >= MIN_BUCKETS &&
                buckets <= MAX_BUCKETS && tick > 0 &&
                !acker_read_edges(text(reply->element[5], "edges"), &edges);
    if (good) {
        acker_text salt = text(reply->element[5], "salt");
        client->ids.edges = edges;
        snprintf(client->ids.salt, sizeof client->ids.salt, "%s", salt.data);
        client->reshard = text(reply->element[5], "reshard").size > 0;
        client->shards = (unsigned)shards;
        client->buckets = (unsigned)buckets;
        client->fence = (buckets - 1) * tick * MS;
        client->known = true;
    } else {
        acker_say(error, "SCHEMA", "the configuration in Redis is one that no script writes");
    }
    freeReplyObject(reply);
    return good ? 0 : -1;
}

/* Read the configuration, and retry until Redis answers; if known is set, use the cached one. */
static int configuration(acker_client *client, bool known, int64_t end, acker_error *error) {
    acker_error said;
    if (known && client->known) return 0;
    for (int64_t pause = FIRST_PAUSE; read_config(client, &said); rest(&pause, end)) {
        if (!is(&said, "UNAVAILABLE") || now_ns() + pause > end) return pass_on(error, &said);
    }
    return 0;
}

static int64_t deadline(const acker_client *client) {
    int64_t wait = client->options.retry_ms;
    if (wait < 0) return now_ns() + PATIENCE;
    return wait ? now_ns() + (wait < FOREVER / MS ? wait * MS : FOREVER) : 0;
}

int acker_shards(acker_client *client, bool fresh, unsigned *shards, unsigned *buckets,
                 acker_error *error) {
    if (configuration(client, !fresh, deadline(client), error)) return -1;
    *shards = client->shards;
    if (buckets) *buckets = client->buckets;
    return 0;
}

id_maker *acker_ids(acker_client *client, acker_error *error) {
    return configuration(client, true, deadline(client), error) ? NULL : &client->ids;
}

id_maker *acker_maker(acker_client *client, bool derived, acker_error *error) {
    int64_t begun = now_ns();
    acker_error said;
    check_fork(client);
    if (client->known || derived) return acker_ids(client, error);
    bool was_read = *client->ids.salt;
    if (!was_read && begun < client->ids_due) return &client->ids;
    if (!read_config(client, &said) || was_read) return &client->ids;
    if (!is(&said, "UNAVAILABLE")) {
        pass_on(error, &said);
        return NULL;
    }
    if (!client->ids_due) {
        fprintf(stderr,
                "acker: %s: messages that are emitted now carry no edge, because edges and salt could "
                "not be read; a verdict cannot tell on which edge one is lost: %s\n",
                client->namespace_, said.words);
    }
    int64_t now = now_ns(), wait = 10 * (now - begun);
    client->ids_due = now + (wait > IDS_RETRY ? wait : IDS_RETRY);
    return &client->ids;
}

/* --- Delivery of batches --- */

static void unseal(acker_batch *batch) {
    if (!batch->sent) return;
    acker_parts_free(batch->sent->parts, batch->sent->count);
    free(batch->sent->rejected);
    free(batch->sent->rejected_blocks);
    free(batch->sent);
    batch->sent = NULL;
}

/* Pack a batch under a lane and its next numbers; from then on the batch accepts no rows. */
static void seal(acker_client *client, acker_batch *batch, const char *name, uint64_t *seq,
                 const char *digest) {
    sent *its = acker_alloc(sizeof *its);
    memset(its, 0, sizeof *its);
    its->parts = acker_parts(batch, client->shards, &its->count);
    its->shards = client->shards;
    its->fence = client->fence;
    snprintf(its->lane, sizeof its->lane, "%s", name);
    for (size_t i = 0; i < its->count; i++) {
        part *one = &its->parts[i];
        one->seq = ++*seq;
        if (digest) snprintf(one->digest, sizeof one->digest, "%s", digest);
        if (*name) {
            snprintf(one->fence, sizeof one->fence, "%llu%s%s", (unsigned long long)one->seq,
                     *one->digest ? ":" : "", one->digest);
        }
        acker_prefix(client, one->shard, one->keys[0]);
        snprintf(one->keys[1], sizeof one->keys[1], "acker:{%s:%u}:meta", client->namespace_,
                 one->shard);
        int script = one->in_blocks ? APPLY_BLOCKS : APPLY;
        const char *words[HEAD] = {"EVALSHA",    scripts[script].sha, "2",       one->keys[0],
                                   one->keys[1], its->lane,           one->fence};
        for (int k = 0; k < HEAD; k++) {
            one->argv[k] = words[k];
            one->sizes[k] = strlen(words[k]);
        }
    }
    batch->sent = its;
}

/* Return whether no part of the batch can have been applied. */
static bool refused(const sent *its) {
    for (size_t i = 0; i < its->count; i++) {
        if (its->parts[i].doubt || its->parts[i].answered) return false;
    }
    return true;
}

static bool answered(const sent *its) {
    for (size_t i = 0; i < its->count; i++) {
        if (!its->parts[i].answered) return false;
    }
    return true;
}

static int unreadable(acker_error *error) {
    return acker_say(error, "REDIS", "the reply of a script cannot be parsed");
}

/* Parse the reply to a call of a batch. */
static int read_reply(sent *its, part *one, const redisReply *reply, acker_error *error) {
    if (reply->type != REDIS_REPLY_ARRAY) return unreadable(error);
    if (reply->elements == 2 && reply->element[1]->type == REDIS_REPLY_STRING) {
        uint64_t highest;
        acker_text text = {reply->element[1]->str, reply->element[1]->len};
        if (acker_parse_id(text, &highest, NULL)) return unreadable(error);
        if (highest > one->seq) {
            return acker_say(error, "LANE",
                             "lane %.40s is at %llu, this batch is %llu: a later batch, or another "
                             "process, has used the lane; this batch is not applied again",
                             its->lane, (unsigned long long)highest, (unsigned long long)one->seq);
        }
        one->repeated = true;
        return 0;
    }
    if (reply->elements != 8 || reply->element[7]->type != REDIS_REPLY_STRING) {
        return unreadable(error);
    }
    one->tracked = reply->element[1]->integer;
    one->acked = reply->element[2]->integer;
    one->failed = reply->element[3]->integer;
    const unsigned char *numbers = (const unsigned char *)reply->element[7]->str;
    size_t count = reply->element[7]->len / 2;
    uint64_t **list = one->in_blocks ? &its->rejected_blocks : &its->rejected;
    size_t *size = one->in_blocks ? &its->rejected_blocks_count : &its->rejected_count;
    if (count) *list = acker_more(*list, (*size + count) * sizeof **list);
    for (size_t i = 0; i < count; i++) {
        size_t which = (size_t)numbers[2 * i] << 8 | numbers[2 * i + 1];
        if (which >= one->ids_count) return unreadable(error);
        (*list)[(*size)++] = one->ids[which];
    }
    return 0;
}

/* Make one attempt, or wait for the attempt that is in flight. */
static int attempt(acker_client *client, sent *its, part *one, acker_error *error) {
    redisReply *reply = NULL;
    node *at = NULL;
    if (one->flying) {
        one->flying = false;
        if (!(reply = await(one->node, &one->call, error))) {
            client->stale = true;
            return -1;
        }
        at = one->node;
    }
    /* If the node does not know the script, argv[0] and [1] become those of EVAL, and stay so. */
    int script = *one->argv[0] == 'E' && one->sizes[0] == 4 ? -1
                 : one->in_blocks                           ? APPLY_BLOCKS
                                                            : APPLY;
    reply = checked(ask(client, slot_of(one->keys[0]), at, reply, script, (int)one->argc, one->argv,
                        one->sizes, error),
                    error);
    if (!reply) return -1;
    int done = read_reply(its, one, reply, error);
    freeReplyObject(reply);
    return done;
}

static void mark(part *one) {
    if (!one->first) one->first = now_ns();
    one->before = one->doubt;
    one->doubt = true;
}

static int late(acker_error *error) {
    return acker_say(error, "LATE",
                     "this batch was first sent too long ago to be sent again: its fence may have "
                     "expired; let its trees expire");
}

/* Return whether each row begins a tree. Such rows do not wait for memory: their retries would hold
 * up rows that free some. */
static bool only_tracks(const part *one) {
    bool only = !one->in_blocks;
    for (size_t i = 0; only && i < one->sizes[HEAD]; i++) only = one->argv[HEAD][i] & TRACK;
    return only;
}

/* Return whether the error means that nothing was changed. */
static bool surely_not(const acker_error *error) {
    static const char *codes[] = {"ARGS", "SHARD", "NAMESPACE", "SCHEMA", "FENCE", "BACKLOG"};
    if (error->may_pass) return true;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (is(error, codes[i])) return true;
    }
    return false;
}

/* Send the same bytes under the same number until they are answered or may not be sent again. */
static int deliver_part(acker_client *client, sent *its, part *one, int64_t end,
                        acker_error *error) {
    int64_t begun = now_ns(), pause = FIRST_PAUSE;
    for (;;) {
        if (!one->flying) {
            if (one->first && now_ns() - one->first > its->fence) return late(error);
            mark(one);
        }
        if (!attempt(client, its, one, error)) {
            one->answered = true;
            return 0;
        }
        if (surely_not(error)) {
            one->doubt = one->before;
            if (!one->doubt) one->first = 0;
        }
        bool away = is(error, "UNAVAILABLE") ||
                    (error->may_pass && !(error->may_pass == 2 && only_tracks(one)));
        if (!away && !is(error, "BACKLOG")) return -1;
        int64_t limit = end >= 0 ? end : begun + its->fence;
        bool is_late = one->doubt && (end < 0 || one->first + its->fence < limit);
        if (is_late) limit = one->first + its->fence;
        if (now_ns() + pause > limit) return is_late ? late(error) : -1;
        rest(&pause, limit);
        if (away) {
            /* Read for how long the fence holds now. If Redis does not answer this, retry the call
             * anyway. */
            acker_error said;
            if (!read_config(client, &said)) {
                if (client->fence < its->fence) its->fence = client->fence;
            } else if (!is(&said, "UNAVAILABLE") && !said.may_pass) {
                return pass_on(error, &said);
            }
        }
    }
}

/* Send the first call for each shard without waiting. Calls that fail here are sent later. */
static void launch(acker_client *client, sent *its) {
    for (size_t i = 0; i < its->count; i++) {
        part *one = &its->parts[i];
        bool skip = one->answered || one->flying;
        /* The calls of one shard are sent one after the other, in the order of their numbers. */
        for (size_t k = 0; !skip && k < i; k++) {
            skip = its->parts[k].shard == one->shard && !its->parts[k].answered;
        }
        if (skip) continue;
        acker_error said;
        if (one->first && now_ns() - one->first > its->fence) continue;
        one->node = node_of(client, slot_of(one->keys[0]), &said);
        if (!one->node || dial(client, one->node, &said)) continue;
        mark(one);
        one->flying = !issue(client, one->node, false, &one->call, (int)one->argc, one->argv,
                             one->sizes, &said);
    }
}

static int name_lane(lane *its, acker_error *error) {
    uint8_t raw[16];
    if (*its->name) return 0;
    if (acker_random(raw, sizeof raw, error)) return -1;
    acker_hex(raw, sizeof raw, its->name);
    its->seq = 0;
    return 0;
}

/* Pack a batch, unless it is packed, and send its first calls. */
static int start(acker_client *client, lane *its, acker_batch *batch, acker_error *error) {
    its->end = client->options.retry_ms < 0 ? -1 : deadline(client);
    int64_t limit = its->end < 0 ? now_ns() + 6 * PATIENCE : its->end;
    /* A retry needs the current configuration: it says for how long the fence holds. */
    if (configuration(client, !batch->sent, limit, error)) return -1;
    if (!batch->sent) {
        if (name_lane(its, error)) return -1;
        seal(client, batch, its->name, &its->seq, NULL);
    } else if (client->fence < batch->sent->fence) {
        batch->sent->fence = client->fence;
    }
    launch(client, batch->sent);
    return 0;
}

static int land_parts(acker_client *client, sent *its, int64_t end, acker_error *error) {
    int failed = 0;
    acker_error said;
    for (size_t i = 0; i < its->count; i++) {
        part *one = &its->parts[i];
        if (one->answered) continue;
        bool blocked = false;
        for (size_t k = 0; k < i; k++) {
            blocked |= its->parts[k].shard == one->shard && !its->parts[k].answered;
        }
        if (blocked || !deliver_part(client, its, one, end, &said)) continue;
        /* The calls of the other shards are in flight: read their replies. */
        if (!failed && error) *error = said;
        failed = -1;
        for (size_t k = i + 1; k < its->count; k++) {
            part *other = &its->parts[k];
            if (!other->flying) continue;
            if (!attempt(client, its, other, &said)) {
                other->answered = true;
            } else if (surely_not(&said)) {
                other->doubt = other->before;
                if (!other->doubt) other->first = 0;
            }
        }
        break;
    }
    return failed;
}

/* Wait for the replies of a batch that was started. */
static int land(acker_client *client, lane *its, acker_batch *batch, acker_error *error) {
    int64_t pause = FIRST_PAUSE;
    acker_error said;
    for (bool retried = false;; retried = true) {
        if (!land_parts(client, batch->sent, its->end, &said)) return 0;
        if (!is(&said, "SHARD") && !is(&said, "NAMESPACE")) break;
        client->known = false;
        if (!refused(batch->sent)) {
            return acker_say(error, said.code,
                             "%.120s. A part of this batch may have been applied before, so the "
                             "rest cannot be sent to other shards: give it up. Its trees expire; "
                             "track those again that get no verdict",
                             said.words);
        }
        /* Repack the batch for the new shards. During a reshard, shard 0 may still have the old
         * number. */
        unsigned shards = batch->sent->shards;
        int64_t limit = its->end < 0 ? now_ns() + PATIENCE : its->end;
        unseal(batch);
        acker_error other;
        if (configuration(client, false, limit, &other)) {
            said = other;
            break;
        }
        if (client->shards == shards && retried) {
            if (its->end < 0) limit = now_ns() + client->fence;
            if (!client->reshard || now_ns() + pause > limit) break;
            rest(&pause, limit);
        }
        if (name_lane(its, error)) return -1;
        seal(client, batch, its->name, &its->seq, NULL);
        launch(client, batch->sent);
    }
    return pass_on(error, &said);
}

/* After a batch, keep the lane, unless the batch may be sent again under it. */
static void leave(lane *its, acker_batch *batch) {
    if (!batch->sent) return;
    if (refused(batch->sent)) {
        unseal(batch);
    } else if (!answered(batch->sent) && !strcmp(batch->sent->lane, its->name)) {
        *its->name = 0;
    }
}

static void give_up(acker_client *client, const acker_batch *batch, const acker_error *error) {
    if (!*client->failed.code) client->failed = *error;
    if (!client->options.on_given_up) return;
    uint64_t *anchors = acker_alloc(batch->size * sizeof *anchors);
    for (size_t i = 0; i < batch->size; i++) anchors[i] = batch->rows[i].anchor;
    client->options.on_given_up(client->options.context, error, anchors, batch->size);
    free(anchors);
}

/* Wait for the batch in flight on a lane. */
static void settle(acker_client *client, lane *its) {
    acker_batch *batch = its->batch;
    acker_error said;
    if (!batch) return;
    its->batch = NULL;
    if (land(client, its, batch, &said)) give_up(client, batch, &said);
    leave(its, batch);
    acker_batch_free(batch);
}

static lane *free_lane(acker_client *client) {
    lane *oldest = NULL;
    for (unsigned i = 0; i < client->options.lanes; i++) {
        lane *its = &client->lanes[i];
        if (!its->batch) return its;
        if (!oldest || its->turn < oldest->turn) oldest = its;
    }
    settle(client, oldest);
    return oldest;
}

static void fill(const acker_batch *batch, acker_applied *applied) {
    memset(applied, 0, sizeof *applied);
    if (!batch->sent) return;
    for (size_t i = 0; i < batch->sent->count; i++) {
        const part *one = &batch->sent->parts[i];
        applied->tracked += one->tracked;
        applied->acked += one->acked;
        applied->failed += one->failed;
        applied->repeated |= one->repeated;
    }
    applied->rejected = batch->sent->rejected;
    applied->rejected_count = batch->sent->rejected_count;
    applied->rejected_blocks = batch->sent->rejected_blocks;
    applied->rejected_blocks_count = batch->sent->rejected_blocks_count;
}

int acker_apply(acker_client *client, acker_batch *batch, acker_applied *applied,
                acker_error *error) {
    check_fork(client);
    if (applied) memset(applied, 0, sizeof *applied);
    if (!batch->size && !batch->blocks_count) return 0;
    lane *its = free_lane(client);
    int done = start(client, its, batch, error);
    if (!done) done = land(client, its, batch, error);
    leave(its, batch);
    if (applied) fill(batch, applied);
    return done;
}

int acker_apply_under(acker_client *client, acker_batch *batch, const char *producer, uint64_t seq,
                      const char *digest, acker_applied *applied, acker_error *error) {
    memset(applied, 0, sizeof *applied);
    if (configuration(client, true, 0, error)) return -1;
    if (!batch->size && !batch->blocks_count) return 0;
    uint64_t before = seq - 1;
    seal(client, batch, producer, &before, digest);
    for (size_t i = 0; i < batch->sent->count; i++) {
        if (attempt(client, batch->sent, &batch->sent->parts[i], error)) return -1;
    }
    fill(batch, applied);
    return 0;
}

int acker_send(acker_client *client, acker_batch *batch, acker_error *error) {
    check_fork(client);
    if (!batch->size && !batch->blocks_count) {
        acker_batch_free(batch);
        return 0;
    }
    lane *its = free_lane(client);
    acker_error said;
    if (start(client, its, batch, &said)) {
        give_up(client, batch, &said);
        leave(its, batch);
        acker_batch_free(batch);
        return pass_on(error, &said);
    }
    its->batch = batch;
    its->turn = ++client->turns;
    return 0;
}

/* --- Buffered rows --- */

static void send_open(acker_client *client, unsigned shard) {
    acker_batch *batch = client->open[shard].batch;
    client->open[shard].batch = NULL;
    if (batch) acker_send(client, batch, NULL); /* acker_flush reports its error */
}

int64_t acker_poll(acker_client *client) {
    check_fork(client);
    if (!client->due) return -1;
    int64_t now = now_ns(), next = 0;
    if (now < client->due) return (client->due - now + MS - 1) / MS;
    for (unsigned i = 0; i < client->open_count; i++) {
        if (!client->open[i].batch) continue;
        if (client->open[i].due <= now) {
            send_open(client, i);
        } else if (!next || client->open[i].due < next) {
            next = client->open[i].due;
        }
    }
    client->due = next;
    return next ? (next - now + MS - 1) / MS : -1;
}

/* Return the shard of an anchor. While their number is unknown, rows go into one batch, which is
 * divided among the shards when it is sent. */
static unsigned shard_of(const acker_client *client, uint64_t anchor) {
    return client->shards > 1 ? acker_shard_of(anchor, client->shards) : 0;
}

static bool has_rows(const acker_client *client) {
    bool found = client->due;
    for (unsigned i = 0; i < client->options.lanes; i++) found |= client->lanes[i].batch != NULL;
    return found;
}

/* Accept whole rows that were checked. The first rows ask Redis for the number of shards; a refusal
 * is their error, and if Redis does not answer, they wait. */
int acker_put(acker_client *client, const acker_id *rows, size_t count, uint8_t flags,
              acker_text why, acker_error *error) {
    acker_poll(client);
    if (!count) return 0;
    acker_error said;
    if (!client->known && !has_rows(client) && read_config(client, &said) &&
        !is(&said, "UNAVAILABLE")) {
        return pass_on(error, &said);
    }
    unsigned shards = client->shards ? client->shards : 1;
    if (client->open_count < shards) {
        client->open = acker_more(client->open, shards * sizeof *client->open);
        while (client->open_count < shards) client->open[client->open_count++].batch = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned shard = shard_of(client, rows[i].anchor);
        open_batch *its = &client->open[shard];
        if (its->batch && acker_batch_full(its->batch)) send_open(client, shard);
        /* send_open may have read a configuration with another number of shards. */
        shard = shard_of(client, rows[i].anchor);
        if (shard >= client->open_count) shard = 0;
        its = &client->open[shard];
        if (!its->batch) {
            int64_t linger = client->options.linger_ms;
            its->batch = acker_batch_new(NULL, NULL);
            its->due = now_ns() + (linger < FOREVER / MS ? linger * MS : FOREVER);
            if (!client->due || its->due < client->due) client->due = its->due;
        }
        if (acker_batch_add(its->batch, rows[i].anchor, rows[i].tuple, flags, why, error))
            return -1;
        if (acker_batch_full(its->batch)) send_open(client, shard);
    }
    if (!client->options.linger_ms) acker_poll(client);
    return 0;
}

int acker_flush(acker_client *client, acker_error *error) {
    check_fork(client);
    for (unsigned i = 0; i < client->open_count; i++) send_open(client, i);
    client->due = 0;
    for (unsigned i = 0; i < client->options.lanes; i++) settle(client, &client->lanes[i]);
    if (!*client->failed.code) return 0;
    pass_on(error, &client->failed);
    memset(&client->failed, 0, sizeof client->failed);
    return -1;
}

/* --- A client --- */

acker_client *acker_open(const char *nodes, const char *namespace_, const acker_options *options,
                         acker_error *error) {
    static const acker_options defaults = ACKER_OPTIONS;
    if (!options) options = &defaults;
    if (acker_check_name("namespace", namespace_, strlen(namespace_), error)) return NULL;
    if (options->lanes < 1 || options->lanes > MAX_LANES || !options->timeout_ms ||
        options->linger_ms < 0 || (options->user && !options->password)) {
        acker_say(error, "REFUSED",
                  "lanes must be 1 to %d, timeout_ms at least 1, linger_ms at least 0, "
                  "and a user needs a password",
                  MAX_LANES);
        return NULL;
    }
    acker_client *client = acker_alloc(sizeof *client);
    memset(client, 0, sizeof *client);
    client->options = *options;
    client->user = acker_copy(options->user);
    client->password = acker_copy(options->password);
    client->pid = getpid();
    client->stale = true;
    strcpy(client->namespace_, namespace_);
    while (*nodes) {
        size_t size = strcspn(nodes, ",");
        const char *colon = memrchr(nodes, ':', size);
        if (size > 255 || (*nodes != '/' && (!colon || colon == nodes))) {
            acker_say(error, "REFUSED", "a node must be host:port, or the path of a socket");
            acker_close(client);
            return NULL;
        }
        node_at(client, nodes, size);
        nodes += size + (nodes[size] == ',');
    }
    if (!client->nodes) {
        acker_say(error, "REFUSED", "no node is given; name at least one, host:port");
        acker_close(client);
        return NULL;
    }
    return client;
}

void acker_close(acker_client *client) {
    if (!client) return;
    for (node *one = client->nodes, *next; one; one = next) {
        next = one->next;
        hang_up(one);
        free(one->address);
        free(one);
    }
    for (unsigned i = 0; i < MAX_LANES; i++) acker_batch_free(client->lanes[i].batch);
    for (unsigned i = 0; i < client->open_count; i++) acker_batch_free(client->open[i].batch);
    free(client->open);
    acker_id_maker_free(&client->ids);
    free(client->user);
    free(client->password);
    free(client);
}
