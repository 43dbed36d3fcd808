/* The driver of this client for tests/languages: see clients/DRIVER.md. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

static acker_client *client;
static char nodes[2000], namespace_[65];
static acker_options options = ACKER_OPTIONS;
static acker_error error;

static acker_text text_of(const json *object, const char *name) {
    const json *found = acker_json_get(object, name);
    return found && found->text.data ? found->text : acker_str("");
}

static int64_t number_of(const json *object, const char *name) {
    return atoll(text_of(object, name).data);
}

static bool true_in(const json *object, const char *name) {
    const json *found = acker_json_get(object, name);
    return found && found->kind == JSON_TRUE;
}

static int ids_of(const json *list, uint64_t **ids, size_t *count) {
    *count = list ? list->count : 0;
    *ids = acker_alloc(*count * sizeof **ids);
    for (size_t i = 0; i < *count; i++) {
        if (acker_parse_id(list->items[i].text, &(*ids)[i], &error)) return -1;
    }
    return 0;
}

static void put_text(acker_text text) {
    putchar('"');
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\') putchar('\\');
        if (c < 0x20) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void put_ids(const char *name, const uint64_t *ids, size_t count) {
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < count; i++) {
        printf("%s\"%llu\"", i ? ", " : "", (unsigned long long)ids[i]);
    }
    putchar(']');
}

static int fold_row(acker_batch *batch, const char *verb, const json *its) {
    uint64_t anchor, tuple = 0, *ids = NULL;
    size_t count;
    bool in_block = !strcmp(verb, "track_block"), counts = text_of(its, "tuple").size > 0;
    int done = acker_parse_id(text_of(its, in_block ? "block" : "anchor"), &anchor, &error);
    if (!done) done = ids_of(acker_json_get(its, in_block ? "deltas" : "emitted"), &ids, &count);
    if (!done && counts) done = acker_parse_id(text_of(its, "tuple"), &tuple, &error);
    if (done) {
        free(ids);
        return -1;
    }
    if (in_block) {
        done = acker_batch_track_block(batch, anchor, text_of(its, "label"), ids, count, &error);
    } else if (!strcmp(verb, "track")) {
        done = acker_batch_track(batch, anchor, text_of(its, "source_id"), ids, count, &error);
    } else if (!strcmp(verb, "ack")) {
        done = acker_batch_ack(batch, anchor, tuple, ids, count, &error);
    } else if (!strcmp(verb, "fail") && counts) {
        done = acker_batch_fail_processed(batch, anchor, text_of(its, "why"), tuple, ids, count,
                                          &error);
    } else if (!strcmp(verb, "fail")) {
        done = acker_batch_fail(batch, anchor, text_of(its, "why"), &error);
    } else if (!strcmp(verb, "touch")) {
        done = acker_batch_touch(batch, anchor, &error);
    } else {
        done = acker_say(&error, "DRIVER", "unknown row %s", verb);
    }
    free(ids);
    return done;
}

static int apply(const json *asked) {
    acker_text task = text_of(asked, "task"), producer = text_of(asked, "producer");
    const json *rows = acker_json_get(asked, "rows");
    acker_batch *batch = acker_batch_new(task.data, &error);
    acker_applied applied;
    uint64_t seq = 1;
    if (!batch) return -1;
    int done = producer.size ? acker_parse_id(text_of(asked, "seq"), &seq, &error) : 0;
    for (size_t i = 0; !done && i < rows->count; i++) {
        const json *row = &rows->items[i];
        done = fold_row(batch, row->items[0].text.data, &row->items[1]);
    }
    if (!done) {
        done = acker_apply_under(client, batch, producer.data, seq, text_of(asked, "digest").data,
                                 &applied, &error);
    }
    if (!done) {
        printf("{\"tracked\": %lld, \"acked\": %lld, \"failed\": %lld, \"repeated\": %s",
               applied.tracked, applied.acked, applied.failed, applied.repeated ? "true" : "false");
        put_ids("rejected", applied.rejected, applied.rejected_count);
        put_ids("rejected_blocks", applied.rejected_blocks, applied.rejected_blocks_count);
        putchar('}');
    }
    acker_batch_free(batch);
    return done;
}

static int outcomes(const json *asked, bool take) {
    acker_outcomes *found = acker_read(client, text_of(asked, "task").data, 64, &error);
    if (!found) return -1;
    if (take && acker_take(client, found, &error)) {
        acker_outcomes_free(found);
        return -1;
    }
    printf("{\"outcomes\": [");
    for (size_t i = 0; i < found->count; i++) {
        const acker_outcome *one = &found->outcomes[i];
        printf("%s[\"%s\", \"%s\", \"%llu\", ", i ? ", " : "", one->verdict, one->reason,
               (unsigned long long)one->anchor);
        put_text(one->source_id);
        printf(", ");
        put_text(one->why);
        printf(", %lld, \"%s\", \"", (long long)one->age_ms, one->cause);
        if (*one->cause) printf("%016llx", (unsigned long long)one->residual);
        printf("\", %lld, [", (long long)one->idle_ms);
        for (size_t k = 0; k < one->edges_count; k++) {
            printf("%s\"%s\"", k ? ", " : "", one->edges[k]);
        }
        printf("]]");
    }
    printf("]}");
    acker_outcomes_free(found);
    return 0;
}

static int track(const json *asked) {
    size_t count = (size_t)number_of(asked, "emit");
    uint64_t anchor, *ids = acker_alloc(count * sizeof *ids);
    char message[ACKER_ID_SIZE];
    int done = acker_track(client, text_of(asked, "task").data, text_of(asked, "source_id"),
                           text_of(asked, "edge").data, &anchor, ids, count, &error);
    if (!done) {
        printf("{\"emitted\": [");
        for (size_t i = 0; i < count; i++) {
            acker_format(anchor, ids[i], message);
            printf("%s\"%s\"", i ? ", " : "", message);
        }
        printf("]}");
    }
    free(ids);
    return done;
}

static int track_block(const json *asked) {
    uint64_t *deltas, block;
    size_t count;
    int done = ids_of(acker_json_get(asked, "deltas"), &deltas, &count);
    if (!done) {
        done = acker_track_block(client, text_of(asked, "task").data, text_of(asked, "label"),
                                 deltas, count, &block, &error);
    }
    if (!done) printf("{\"block\": \"%llu\"}", (unsigned long long)block);
    free(deltas);
    return done;
}

static int work(const json *asked) {
    const json *inputs = acker_json_get(asked, "inputs"), *emit = acker_json_get(asked, "emit");
    const json *edges = acker_json_get(asked, "edges"), *keys = acker_json_get(asked, "keys");
    const char *end = text_of(asked, "end").data;
    acker_text *messages = acker_alloc(inputs->count * sizeof *messages);
    char **emitted = acker_alloc(emit->count * sizeof *emitted);
    for (size_t i = 0; i < inputs->count; i++) messages[i] = inputs->items[i].text;
    acker_processing *its = acker_process(client, messages, inputs->count, &error);
    int done = its ? 0 : -1;
    size_t made = 0;
    while (!done && made < emit->count) {
        const json *one = &emit->items[made];
        size_t *places = acker_alloc(one->count * sizeof *places);
        for (size_t i = 0; i < one->count; i++) places[i] = (size_t)atoll(one->items[i].text.data);
        acker_child child = {NULL, {NULL, 0}};
        if (edges) child.edge = edges->items[made].text.data;
        if (keys) child.key = keys->items[made].text; /* of null: no text */
        if ((emitted[made] = acker_emit(its, places, one->count, &child, &error))) {
            made++;
        } else {
            done = -1;
        }
        free(places);
    }
    if (!done && !strcmp(end, "ack")) done = acker_processed(its, &error);
    if (!done && !strcmp(end, "fail"))
        done = acker_process_failed(its, text_of(asked, "why"), &error);
    if (!done && !strcmp(end, "touch")) done = acker_process_touch(its, &error);
    if (!done && !strcmp(end, "late") && !(done = acker_processed(its, &error))) {
        char *late = acker_emit(its, NULL, 0, NULL, &error);
        done = late ? 0 : -1;
        free(late);
    }
    if (!done && true_in(asked, "flush")) done = acker_flush(client, &error);
    if (!done) printf("{\"emitted\": [");
    for (size_t i = 0; i < made; i++) {
        if (!done) printf("%s\"%s\"", i ? ", " : "", emitted[i]);
        free(emitted[i]);
    }
    if (!done) printf("]}");
    acker_processing_free(its);
    free(messages);
    free(emitted);
    return done;
}

static double seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int bench(const json *asked) {
    size_t rows = (size_t)number_of(asked, "rows"), size = (size_t)number_of(asked, "batch");
    size_t trees = (size_t)number_of(asked, "trees");
    uint64_t *anchors = acker_alloc(trees * sizeof *anchors), block;
    uint64_t *ids = acker_alloc(2 * rows * sizeof *ids);
    uint64_t *deltas = acker_alloc(trees * sizeof *deltas);
    int done = acker_new_ids(ids, 2 * rows, &error) || acker_new_ids(deltas, trees, &error);
    bool blocks = true_in(asked, "blocks");
    acker_options many = options;
    many.lanes = (unsigned)number_of(asked, "lanes");
    acker_client *its = acker_open(nodes, namespace_, &many, &error);
    if (!its) done = -1;
    double tracking = seconds();
    for (size_t first = 0; !done && first < trees; first += size) {
        size_t last = first + size < trees ? first + size : trees;
        if (blocks) {
            char label[64];
            snprintf(label, sizeof label, "bench %" PRIu64 " %zu", deltas[0], first);
            done = acker_track_block(its, "bench", acker_str(label), &deltas[first], last - first,
                                     &block, &error);
            for (size_t i = first; !done && i < last; i++) {
                anchors[i] = (uint64_t)1 << 62 | block << 12 | (i - first);
            }
            continue;
        }
        acker_batch *batch = acker_batch_new("bench", NULL);
        for (size_t i = first; !done && i < last; i++) {
            done = acker_new_anchor(&anchors[i], &error) ||
                   acker_batch_track(batch, anchors[i], acker_str("bench"), &deltas[i], 1, &error);
        }
        if (!done) done = acker_apply(its, batch, NULL, &error);
        acker_batch_free(batch);
    }
    double begun = seconds();
    tracking = begun - tracking;
    for (size_t first = 0; !done && first < rows; first += size) {
        acker_batch *batch = acker_batch_new(NULL, NULL);
        for (size_t i = first; !done && i < rows && i < first + size; i++) {
            done =
                acker_batch_ack(batch, anchors[i % trees], ids[2 * i], &ids[2 * i + 1], 1, &error);
        }
        if (!done) {
            done = acker_send(its, batch, &error);
        } else {
            acker_batch_free(batch);
        }
    }
    if (!done) done = acker_flush(its, &error);
    if (!done) {
        printf("{\"rows\": %zu, \"seconds\": %.6f, \"tracking\": %.6f}", rows, seconds() - begun,
               tracking);
    }
    acker_close(its);
    free(anchors);
    free(ids);
    free(deltas);
    return done;
}

static int connect_to(const json *asked) {
    const json *named = acker_json_get(asked, "nodes");
    acker_close(client);
    client = NULL;
    *nodes = 0;
    for (size_t i = 0; i < named->count; i++) {
        size_t at = strlen(nodes);
        snprintf(nodes + at, sizeof nodes - at, "%s%s", i ? "," : "", named->items[i].text.data);
    }
    options.cluster = true_in(asked, "cluster");
    options.timeout_ms = (unsigned)number_of(asked, "timeout_ms");
    return 0;
}

static int begin(const json *asked) {
    options.retry_ms = number_of(asked, "retry_ms");
    options.linger_ms = number_of(asked, "linger_ms");
    snprintf(namespace_, sizeof namespace_, "%s", text_of(asked, "namespace").data);
    acker_close(client);
    client = acker_open(nodes, namespace_, &options, &error);
    return client ? 0 : -1;
}

static int serve(const json *asked) {
    const char *op = text_of(asked, "op").data;
    if (!strcmp(op, "apply")) return apply(asked);
    if (!strcmp(op, "read")) return outcomes(asked, false);
    if (!strcmp(op, "take")) return outcomes(asked, true);
    if (!strcmp(op, "track")) return track(asked);
    if (!strcmp(op, "track_block")) return track_block(asked);
    if (!strcmp(op, "work")) return work(asked);
    if (!strcmp(op, "bench")) return bench(asked);
    int done = !strcmp(op, "connect") ? connect_to(asked)
               : !strcmp(op, "begin") ? begin(asked)
               : !strcmp(op, "flush") ? acker_flush(client, &error)
                                      : acker_say(&error, "DRIVER", "unknown operation %s", op);
    if (!done) printf("{}");
    return done;
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    while ((size = getline(&line, &room, stdin)) > 0) {
        json *asked = acker_json(line, (size_t)size);
        memset(&error, 0, sizeof error);
        if (!asked) {
            acker_say(&error, "REFUSED", "the request is not valid JSON");
        }
        if (!asked || serve(asked)) {
            printf("{\"error\": \"%s\", \"message\": ", error.code);
            put_text(acker_str(error.words));
            putchar('}');
        }
        putchar('\n');
        fflush(stdout);
        acker_json_free(asked);
    }
    acker_close(client);
    free(line);
    return 0;
}
