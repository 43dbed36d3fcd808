/* Tests of the retries, against a server that gives planned answers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "scripts.h"

#define DROP "drop"
#define APPLIED "*8\r\n:1\r\n:0\r\n:1\r\n:0\r\n$0\r\n\r\n:0\r\n:9\r\n$0\r\n\r\n"
#define REPEAT(n) "*2\r\n:0\r\n$1\r\n" n "\r\n"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *shards[4],
    *tick, *const *answers; /* the last shards repeat; answers NULL: every batch is applied */
static bool reshard;
static struct {
    char command[8], key[64];
    char *data;
    size_t size;
} came[64];
static size_t sent_count;
static char address[32];
static int failures;

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            failures++;                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #what);                             \
        }                                                                                          \
    } while (0)

static void status(char *to) {
    const char *now = shards[0];
    if (shards[1]) memmove(shards, shards + 1, sizeof shards - sizeof *shards);
    sprintf(to,
            "*6\r\n:1\r\n*0\r\n:0\r\n*0\r\n:0\r\n*%d\r\n$6\r\nshards\r\n$%zu\r\n%s\r\n$"
            "7\r\nbuckets\r\n$1\r\n3\r\n"
            "$7\r\ntick_ms\r\n$%zu\r\n%s\r\n%s",
            reshard ? 8 : 6, strlen(now), now, strlen(tick), tick,
            reshard ? "$7\r\nreshard\r\n$3\r\n1:2\r\n" : "");
}

static bool serve(FILE *in, int fd) {
    char line[64], reply[512] = APPLIED, *words[64];
    size_t sizes[64], count;
    if (!fgets(line, sizeof line, in)) return false;
    count = (size_t)atoi(line + 1);
    for (size_t i = 0; i < count; i++) {
        if (!fgets(line, sizeof line, in)) return false;
        sizes[i] = (size_t)atoi(line + 1);
        words[i] = acker_alloc(sizes[i] + 2);
        if (fread(words[i], 1, sizes[i] + 2, in) != sizes[i] + 2) return false;
        words[i][sizes[i]] = 0;
    }
    bool go_on = true;
    pthread_mutex_lock(&lock);
    if (!strcmp(words[1], scripts[STATUS].sha)) {
        status(reply);
    } else {
        FILE *all = open_memstream(&came[sent_count].data, &came[sent_count].size);
        for (size_t i = 3; i < count; i++) {
            fprintf(all, "%zu ", sizes[i]);
            fwrite(words[i], 1, sizes[i], all);
        }
        fclose(all);
        snprintf(came[sent_count].command, sizeof came->command, "%s", words[0]);
        snprintf(came[sent_count++].key, sizeof came->key, "%s", words[3]);
        if (answers && *answers) {
            const char *next = *answers++;
            go_on = strcmp(next, DROP) != 0;
            snprintf(reply, sizeof reply, "%s", next);
        }
    }
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++) free(words[i]);
    return go_on && send(fd, reply, strlen(reply), MSG_NOSIGNAL) > 0;
}

static void *connection(void *its) {
    int fd = (int)(intptr_t)its;
    FILE *in = fdopen(fd, "r");
    while (serve(in, fd)) {
    }
    fclose(in);
    return NULL;
}

static void *server(void *its) {
    for (;;) {
        int fd = accept((int)(intptr_t)its, NULL, NULL);
        pthread_t thread;
        pthread_create(&thread, NULL, connection, (void *)(intptr_t)fd);
        pthread_detach(thread);
    }
    return NULL;
}

static acker_client *begin(const char *const *planned, int64_t retry_ms, unsigned lanes) {
    acker_options options = ACKER_OPTIONS;
    for (size_t i = 0; i < sent_count; i++) free(came[i].data);
    sent_count = 0;
    answers = planned;
    shards[0] = "1";
    shards[1] = shards[2] = shards[3] = NULL;
    tick = "3600000";
    reshard = false;
    options.retry_ms = retry_ms;
    options.lanes = lanes;
    options.linger_ms = 3600000;
    return acker_open(address, "n", &options, NULL);
}

static acker_batch *one_row(uint64_t anchor) {
    const uint64_t emitted = 41;
    acker_batch *batch = acker_batch_new(NULL, NULL);
    CHECK(!acker_batch_ack(batch, anchor, 40, &emitted, 1, NULL));
    return batch;
}

static bool same(size_t a, size_t b) {
    return came[a].size == came[b].size && !memcmp(came[a].data, came[b].data, came[a].size);
}

static void lost_reply_is_retried_under_the_same_number(void) {
    static const char *const planned[] = {
        DROP, "-TRYAGAIN x\r\n",
        "-ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write\r\n",
        REPEAT("1"), NULL};
    acker_client *client = begin(planned, -1, 2);
    acker_batch *batch = one_row(7);
    acker_applied applied;
    CHECK(!acker_apply(client, batch, &applied, NULL) && applied.repeated);
    CHECK(sent_count == 4 && same(0, 1) && same(0, 2) && same(0, 3));
    acker_batch_free(batch);
    acker_close(client);
}

static void higher_number_in_the_reply_is_a_lane_error(void) {
    static const char *const planned[] = {REPEAT("2"), REPEAT("2"), NULL};
    acker_client *client = begin(planned, -1, 1);
    acker_batch *batch = one_row(7), *other = one_row(7);
    acker_error error;
    for (int i = 0; i < 2; i++) {
        CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "LANE"));
    }
    CHECK(sent_count == 2 && same(0, 1));
    /* The lane is not used again. */
    CHECK(!acker_apply(client, other, NULL, &error));
    CHECK(sent_count == 3 && !same(0, 2) && strstr(came[2].data, " 1:"));
    acker_batch_free(batch);
    acker_batch_free(other);
    acker_close(client);
}

static void batch_in_doubt_keeps_its_lane(void) {
    static const char *const planned[] = {DROP, NULL};
    acker_client *client = begin(planned, 0, 1);
    acker_batch *doubt = one_row(7), *other = one_row(8);
    acker_error error;
    CHECK(acker_apply(client, doubt, NULL, &error) && !strcmp(error.code, "UNAVAILABLE"));
    CHECK(!acker_apply(client, other, NULL, &error));
    CHECK(!acker_apply(client, doubt, NULL, &error));
    CHECK(sent_count == 3 && same(0, 2) && !same(0, 1));
    CHECK(acker_batch_touch(doubt, 9, &error) && !strcmp(error.code, "REFUSED"));
    acker_batch_free(doubt);
    acker_batch_free(other);
    acker_close(client);
}

static void batch_is_not_retried_after_its_fence_expired(void) {
    static const char *const planned[] = {DROP, DROP, NULL};
    acker_client *client = begin(planned, -1, 1);
    acker_batch *batch = one_row(7);
    acker_error error;
    tick = "1";
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "LATE"));
    CHECK(sent_count == 1);
    acker_batch_free(batch);
    acker_close(client);
    /* The same holds when the program applies the batch again. */
    batch = one_row(7);
    client = begin(planned, 0, 1);
    tick = "1";
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "UNAVAILABLE"));
    usleep(5000);
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "LATE"));
    CHECK(sent_count == 1);
    acker_batch_free(batch);
    acker_close(client);
}

static void batch_is_repacked_for_other_shards_only_if_nothing_is_in_doubt(void) {
    static const char *const planned[] = {"-ACKER SHARD row 0\r\n", NULL};
    static const char *const doubt[] = {DROP, "-ACKER SHARD row 0\r\n", NULL};
    static const char *const thrice[] = {"-ACKER SHARD a\r\n", "-ACKER SHARD a\r\n",
                                         "-ACKER SHARD a\r\n", NULL};
    acker_error error;
    acker_batch *batch = one_row(7);
    acker_client *client = begin(planned, -1, 1);
    shards[1] = "2";
    CHECK(!acker_apply(client, batch, NULL, &error));
    CHECK(sent_count == 2 && !strcmp(came[1].key, "acker:{n:1}"));
    acker_batch_free(batch);
    acker_close(client);
    batch = one_row(7);
    client = begin(doubt, -1, 1);
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "SHARD"));
    CHECK(strstr(error.words, "give it up") && sent_count == 2 && same(0, 1));
    acker_batch_free(batch);
    acker_close(client);
    /* During a reshard shard 0 may still have the old number: the client waits. */
    batch = one_row(7);
    client = begin(thrice, -1, 1);
    shards[1] = shards[2] = "1";
    shards[3] = "2";
    reshard = true;
    CHECK(!acker_apply(client, batch, NULL, &error));
    acker_batch_free(batch);
    acker_close(client);
}

static void backlog_is_retried_and_an_unknown_script_is_sent_by_eval(void) {
    static const char *const planned[] = {"-ACKER BACKLOG full\r\n",
                                       "-NOSCRIPT No matching script\r\n", NULL};
    acker_client *client = begin(planned, -1, 1);
    acker_batch *batch = one_row(7);
    CHECK(!acker_apply(client, batch, NULL, NULL));
    CHECK(sent_count == 3 && same(0, 1) && same(0, 2) && !strcmp(came[2].command, "EVAL"));
    acker_batch_free(batch);
    acker_close(client);
}

static size_t given_up;

static void count_given_up(void *context, const acker_error *error, const uint64_t *anchors,
                           size_t count) {
    (void)context;
    (void)error;
    (void)anchors;
    given_up += count;
}

static void several_batches_are_in_flight_and_a_given_up_one_is_reported(void) {
    static const char *const planned[] = {APPLIED, "-ACKER SCHEMA other\r\n", DROP, NULL};
    acker_options options = ACKER_OPTIONS;
    acker_error error;
    acker_close(begin(planned, -1, 1));
    options.on_given_up = count_given_up;
    options.lanes = 3;
    acker_client *client = acker_open(address, "n", &options, NULL);
    for (uint64_t anchor = 1; anchor <= 5; anchor++)
        CHECK(!acker_send(client, one_row(anchor), &error));
    CHECK(acker_flush(client, &error) && !strcmp(error.code, "SCHEMA") && given_up == 1);
    CHECK(!acker_flush(client, &error));
    acker_text input = acker_str("7:40,8:41");
    acker_processing *its = acker_process(client, &input, 1, &error);
    CHECK(!acker_processed(its, &error));
    CHECK(!acker_emit(its, NULL, 0, &error) && !strcmp(error.code, "CLOSED"));
    acker_processing_free(its);
    CHECK(!acker_flush(client, &error));
    acker_close(client);
}

static void forked_child_has_its_own_lane(void) {
    acker_client *client = begin(NULL, -1, 1);
    acker_batch *first = one_row(1), *mine = one_row(2);
    CHECK(!acker_apply(client, first, NULL, NULL));
    CHECK(!acker_ack(client, 3, 40, NULL, 0, NULL)); /* buffered; belongs to the parent */
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        bool good = !acker_apply(client, mine, NULL, NULL) && !acker_flush(client, NULL);
        _exit(good ? 0 : 1);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && !WEXITSTATUS(how));
    CHECK(sent_count == 2);
    CHECK(!acker_flush(client, NULL) && sent_count == 3);
    /* "16 key 21 meta 32 lane 18 number ..": the lanes differ, and the child begins at number 1. */
    CHECK(!memcmp(came[0].data, came[2].data, 70) && memcmp(came[0].data, came[1].data, 70));
    CHECK(strstr(came[1].data, " 1:") && strstr(came[2].data, " 2:"));
    acker_batch_free(first);
    acker_batch_free(mine);
    acker_close(client);
}

static void forked_child_cannot_use_a_message_of_its_parent(void) {
    acker_client *client = begin(NULL, -1, 1);
    acker_text input = acker_str("7:40");
    acker_error error;
    acker_processing *its = acker_process(client, &input, 1, &error);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        /* The parent's row would not contain the child's edges. */
        bool emitted = acker_emit(its, NULL, 0, &error) || strcmp(error.code, "CLOSED");
        bool acked = !acker_processed(its, &error) || strcmp(error.code, "CLOSED");
        _exit(emitted || acked);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && !WEXITSTATUS(how));
    CHECK(!acker_processed(its, &error) && !acker_flush(client, &error) && sent_count == 1);
    acker_processing_free(its);
    acker_close(client);
}

static void sha256_and_numbers_of_blocks(void) {
    const char *text = "abc";
    size_t size = 3;
    uint8_t digest[32];
    char hex[65];
    acker_sha256(&text, &size, 1, digest);
    acker_hex(digest, 32, hex);
    CHECK(!strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    acker_text identity[2] = {acker_str("shop"), acker_str("page 1")};
    /* The clients for Go and Node derive the same number. */
    CHECK(acker_block_number(identity, 2) == UINT64_C(12104666997411));
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&at, &size)) {
        perror("server");
        return 1;
    }
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    pthread_create(&thread, NULL, server, (void *)(intptr_t)fd);
    lost_reply_is_retried_under_the_same_number();
    higher_number_in_the_reply_is_a_lane_error();
    batch_in_doubt_keeps_its_lane();
    batch_is_not_retried_after_its_fence_expired();
    batch_is_repacked_for_other_shards_only_if_nothing_is_in_doubt();
    backlog_is_retried_and_an_unknown_script_is_sent_by_eval();
    several_batches_are_in_flight_and_a_given_up_one_is_reported();
    forked_child_has_its_own_lane();
    forked_child_cannot_use_a_message_of_its_parent();
    sha256_and_numbers_of_blocks();
    for (size_t i = 0; i < sent_count; i++) free(came[i].data);
    if (!failures) puts("ok");
    return failures != 0;
}
