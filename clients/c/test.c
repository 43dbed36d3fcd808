/* Tests of retries and forks, against a server that gives planned answers, and of ids. */
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
#define SALT "0123456789abcdef0123456789abcdef"
#define APPLIED "*8\r\n:1\r\n:0\r\n:1\r\n:0\r\n$0\r\n\r\n:0\r\n:9\r\n$0\r\n\r\n"
#define REPEAT(n) "*2\r\n:0\r\n$1\r\n" n "\r\n"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *shards[4],
    *tick, *const *answers; /* the last shards repeat; answers NULL: every batch is applied */
static bool reshard;
static const char *edges = "";
static int connections;
static struct {
    char key[64];
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
            "$7\r\ntick_ms\r\n$%zu\r\n%s\r\n"
            "$5\r\nedges\r\n$%zu\r\n%s\r\n$4\r\nsalt\r\n$32\r\n" SALT "\r\n%s",
            reshard ? 12 : 10, strlen(now), now, strlen(tick), tick, strlen(edges), edges,
            reshard ? "$7\r\nreshard\r\n$3\r\n1:2\r\n" : "");
}

static bool serve(FILE *in, int fd) {
    char line[64], reply[2400] = APPLIED, *words[64];
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
        snprintf(came[sent_count++].key, sizeof came->key, "%s",
                 count > 3 ? words[3] : "");
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
        pthread_mutex_lock(&lock);
        connections++;
        pthread_mutex_unlock(&lock);
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
    edges = "";
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

static void batch_is_not_applied_again_after_its_fence_expired(void) {
    static const char *const planned[] = {DROP, NULL};
    acker_client *client = begin(planned, 0, 1);
    acker_batch *batch = one_row(7);
    acker_error error;
    tick = "1";
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "UNAVAILABLE"));
    usleep(5000);
    CHECK(acker_apply(client, batch, NULL, &error) && !strcmp(error.code, "LATE"));
    CHECK(sent_count == 1);
    acker_batch_free(batch);
    acker_close(client);
}

/* During a reshard shard 0 may still have the old number of shards: the client waits. */
static void batch_waits_during_a_reshard(void) {
    static const char *const thrice[] = {"-ACKER SHARD a\r\n", "-ACKER SHARD a\r\n",
                                         "-ACKER SHARD a\r\n", NULL};
    acker_batch *batch = one_row(7);
    acker_client *client = begin(thrice, -1, 1);
    shards[1] = shards[2] = "1";
    shards[3] = "2";
    reshard = true;
    CHECK(!acker_apply(client, batch, NULL, NULL));
    CHECK(sent_count == 4 && strcmp(came[0].key, came[3].key));
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
    CHECK(!acker_emit(its, NULL, 0, NULL, &error) && !strcmp(error.code, "CLOSED"));
    acker_processing_free(its);
    CHECK(!acker_flush(client, &error));
    acker_close(client);
}

static void forked_child_has_its_own_lane(void) {
    acker_client *client = begin(NULL, -1, 1);
    acker_batch *first = one_row(1), *mine = one_row(2);
    CHECK(!acker_apply(client, first, NULL, NULL));
    acker_text input = acker_str("3:40");
    acker_processing *its = acker_process(client, &input, 1, NULL);
    CHECK(!acker_processed(its, NULL)); /* buffered; belongs to the parent */
    acker_processing_free(its);
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
        bool emitted = acker_emit(its, NULL, 0, NULL, &error) || strcmp(error.code, "CLOSED");
        bool acked = !acker_processed(its, &error) || strcmp(error.code, "CLOSED");
        _exit(emitted || acked);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && !WEXITSTATUS(how));
    CHECK(!acker_processed(its, &error) && !acker_flush(client, &error) && sent_count == 1);
    acker_processing_free(its);
    acker_close(client);
}

static void forked_child_reads_by_its_own_connection(void) {
    static const char *const planned[] = {"*0\r\n", "$1\r\n1\r\n", "*0\r\n", "$1\r\n1\r\n",
                                          NULL};
    acker_client *client = begin(planned, -1, 1);
    acker_outcomes *found = acker_read(client, "shop", 16, NULL);
    CHECK(found && !found->count);
    acker_outcomes_free(found);
    int before = connections;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        found = acker_read(client, "shop", 16, NULL);
        bool good = found && !found->count;
        acker_outcomes_free(found);
        _exit(good ? 0 : 1);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && !WEXITSTATUS(how));
    CHECK(connections == before + 1);
    acker_close(client);
}

static bool hashes_to(const char *const *data, const size_t *sizes, size_t count,
                      const char *wanted) {
    uint8_t digest[32];
    char hex[65];
    acker_sha256(data, sizes, count, digest);
    acker_hex(digest, 32, hex);
    return !strcmp(hex, wanted);
}

/* NIST's examples for FIPS 180-4. */
static void sha256_of_the_examples_of_the_standard(void) {
    static const char *const examples[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
         "lmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const char *text = examples[i][0];
        size_t size = strlen(text), third = size / 3;
        CHECK(hashes_to(&text, &size, 1, examples[i][1]));
        const char *parts[3] = {text, text + third, text + 2 * third};
        size_t sizes[3] = {third, third, size - 2 * third};
        CHECK(hashes_to(parts, sizes, 3, examples[i][1]));
    }
    char *million = acker_alloc(1000000);
    size_t size = 1000000;
    memset(million, 'a', size);
    CHECK(hashes_to((const char *const *)&million, &size, 1,
                    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
    free(million);
}

static void unlisted_edge_is_warned_of_once(void) {
    acker_client *client = begin(NULL, -1, 1);
    uint64_t ids[100];
    edges = "mill,shop";
    CHECK(!acker_draw_ids(client, "shop", ids, 100, NULL));
    for (int i = 0; i < 100; i++) CHECK(ids[i] >> 55 == 2);
    FILE *file = tmpfile();
    char text[300];
    int real = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    for (int i = 0; i < 2; i++) CHECK(!acker_draw_ids(client, "bin\n", ids, 100, NULL));
    dup2(real, STDERR_FILENO);
    close(real);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (int i = 0; i < 100; i++) CHECK(ids[i] >> 55 == 0);
    CHECK(!strcmp(text, "acker: the namespace does not list edge bin  (it lists mill, shop): "
                        "verdicts cannot name it\n"));
    acker_close(client);
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
    batch_in_doubt_keeps_its_lane();
    batch_is_not_applied_again_after_its_fence_expired();
    batch_waits_during_a_reshard();
    several_batches_are_in_flight_and_a_given_up_one_is_reported();
    forked_child_has_its_own_lane();
    forked_child_cannot_use_a_message_of_its_parent();
    forked_child_reads_by_its_own_connection();
    sha256_of_the_examples_of_the_standard();
    unlisted_edge_is_warned_of_once();
    for (size_t i = 0; i < sent_count; i++) free(came[i].data);
    if (!failures) puts("ok");
    return failures != 0;
}
