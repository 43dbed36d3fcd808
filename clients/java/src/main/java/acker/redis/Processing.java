package acker.redis;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * Messages that are processed together, and the messages they caused: usually one input, several for a join.
 *
 * <p>A new message has an edge id for each of its inputs, and the XOR of them is its id. The row of a tree is
 * the XOR of the ids of its inputs and of all messages they caused.
 * Call {@link #ack} or {@link #fail} once; a message without either expires. The call closes the message
 * even if it throws, because its rows may have been applied: do not process the message again under new
 * ids, and let its trees expire. Only {@code REFUSED}, {@code FULL} and {@code CLOSED} leave the message
 * open, because no row was accepted. Thread-safe.
 */
public final class Processing {
    private static final Pattern PAIR = Pattern.compile("[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*");
    // From lua/spec.json, by python -m proof.spec
    private static final int MAX_MESSAGE = 65536;
    private static final int MAX_TREES = 1638;

    private final Consumer<List<Row>> sink;
    /** Returns the maker of ids, given whether an id is derived, which needs the salt. */
    private final Function<Boolean, IdMaker> ids;
    private final List<Map<Long, Long>> inputs = new ArrayList<>();

    /**
     * For each tree, the XOR of the ids of its inputs and of all messages they caused. One row covers all inputs
     * of a tree, so it does not matter which input's edge id has the code.
     */
    private final Map<Long, Long> deltas = new LinkedHashMap<>();

    private final Set<String> keys = new HashSet<>();
    private String state = "";

    Processing(Consumer<List<Row>> sink, Function<Boolean, IdMaker> ids, String... messages) {
        this.sink = sink;
        this.ids = ids;
        Set<List<Long>> seen = new HashSet<>();
        for (String message : messages) {
            Map<Long, Long> its = parse(message);
            its.forEach((anchor, id) -> {
                if (!seen.add(List.of(anchor, id))) {
                    throw AckerException.refused("a message of tree %d is given twice; its rows would cancel", anchor);
                }
                deltas.merge(anchor, id, (a, b) -> a ^ b);
            });
            inputs.add(its);
        }
    }

    /**
     * Returns the id of a new message that all inputs caused. Send exactly one message with it.
     *
     * @return {@code <anchor>:<tuple>}, joined by commas; empty if no input is in a tree
     */
    public String emit() {
        return emit(new Child());
    }

    /** Returns the id of a new message that all inputs caused, on an edge or with a key. */
    public String emit(Child child) {
        return emitFrom(child, IntStream.range(0, inputs.size()).toArray());
    }

    /** Returns the id of a new message that some inputs caused, by their places from 0; without any: unanchored. */
    public String emitFrom(int... places) {
        return emitFrom(new Child(), places);
    }

    /** As {@link #emitFrom(int...)}, on an edge or with a key; a key is used once. */
    public String emitFrom(Child child, int... places) {
        List<Map<Long, Long>> parents = parents(places);
        IdMaker maker = ids.apply(child.key() != null && !parents.isEmpty()); // may read the configuration
        long code = maker.code(child.edge());
        synchronized (this) {
            checkOpen();
            if (keys.contains(child.key())) {
                throw AckerException.refused("key %.50s was already used for another message; give each child its own",
                        child.key());
            }
            Map<Long, Long> made = child(parents, child.key(), maker);
            if (child.key() != null) keys.add(child.key());
            made.replaceAll((anchor, id) -> id | code);
            made.forEach((anchor, id) -> deltas.merge(anchor, id, (a, b) -> a ^ b));
            return format(made);
        }
    }

    /** Returns the inputs at some places, without those that are in no tree. */
    private List<Map<Long, Long>> parents(int... places) {
        Set<Integer> distinct = new HashSet<>();
        for (int place : places) {
            if (place < 0 || place >= inputs.size()) {
                throw AckerException.refused("there is no input %d; inputs are numbered from 0", place);
            }
            if (!distinct.add(place)) throw AckerException.refused("input %d is given twice", place);
        }
        return IntStream.of(places).mapToObj(inputs::get).filter(each -> !each.isEmpty()).toList();
    }

    /** Returns the id of a new message in each tree, without a code: the XOR of the edge ids of its inputs. */
    private static Map<Long, Long> child(List<Map<Long, Long>> parents, String key, IdMaker maker) {
        for (int n = 0; ; n++) {
            long[] edges = key == null ? maker.draw(parents.size()) : derived(parents, key, n, maker);
            Map<Long, Long> made = new TreeMap<>();
            for (int i = 0; i < edges.length; i++) {
                long edge = edges[i];
                parents.get(i).keySet().forEach(anchor -> made.merge(anchor, edge, (a, b) -> a ^ b));
            }
            if (made.size() > MAX_TREES) {
                throw AckerException.refused("a message belongs to at most %d trees, not %d; emit several, each"
                        + " anchored to some of the inputs", MAX_TREES, made.size());
            }
            if (!made.containsValue(0L)) return made; // edges that cancel have a probability of 2^-55
        }
    }

    /** Returns an edge id for each input, derived from the key and all inputs. */
    private static long[] derived(List<Map<Long, Long>> parents, String key, int n, IdMaker maker) {
        List<byte[]> parts = new ArrayList<>();
        parts.add(Ids.utf8("key", key));
        parts.add(Replies.bytes(n));
        List<String> texts = parents.stream().map(each -> format(new TreeMap<>(each))).toList();
        texts.stream().sorted().forEach(text -> parts.add(Replies.bytes(text)));
        return texts.stream().mapToLong(text -> {
            List<byte[]> all = new ArrayList<>(parts);
            all.add(Replies.bytes(text));
            return maker.child(all);
        }).toArray();
    }

    /** Acks the messages; emit first. */
    public void ack() {
        end("acked", 0, "");
    }

    /** Fails the messages and their trees, which are nacked immediately; {@code why} is cut to 255 bytes. */
    public void fail(String why) {
        end("failed", Row.FAIL, Ids.clip(why));
    }

    /** Resets the timeout of the trees. */
    public void touch() {
        List<Row> rows;
        synchronized (this) {
            checkOpen();
            rows = deltas.keySet().stream().map(anchor -> new Row(anchor, 0, Row.TOUCH, "")).toList();
        }
        if (!rows.isEmpty()) sink.accept(rows);
    }

    private void end(String how, int flags, String why) {
        List<Row> rows;
        synchronized (this) {
            checkOpen();
            // From here on emit refuses: no row would contain its id.
            state = how;
            rows = new ArrayList<>();
            for (Map.Entry<Long, Long> each : deltas.entrySet()) {
                rows.add(new Row(each.getKey(), each.getValue(), flags, why));
            }
        }
        try {
            if (!rows.isEmpty()) sink.accept(rows);
        } catch (AckerException error) {
            if (error.is("REFUSED", "FULL", "CLOSED")) { // no row was accepted or sent
                synchronized (this) {
                    state = "";
                }
            }
            throw error;
        }
    }

    private void checkOpen() {
        if (!state.isEmpty()) throw new AckerException("CLOSED", "this message was " + state + " before");
    }

    /** Returns the ids of a message by anchor, parsed from its text. */
    static Map<Long, Long> parse(String text) {
        if (text == null) throw AckerException.refused("a message id is text, not null; for an unanchored message, ''");
        if (text.length() > MAX_MESSAGE) {
            throw AckerException.refused("the text of a message id has at most %d characters, not %d",
                    MAX_MESSAGE, text.length());
        }
        Map<Long, Long> ids = new LinkedHashMap<>();
        if (text.isBlank()) return ids;
        for (String pair : text.split(",", -1)) {
            Matcher match = PAIR.matcher(pair);
            if (!match.matches()) {
                // Errors reach logs, and an id is enough to ack its message.
                throw AckerException.refused("an anchored tuple is <anchor>:<tuple>, not %.50s",
                        pair.replaceAll("[0-9]", "#"));
            }
            long anchor = Ids.checkAnchor(Ids.parse(match.group(1)));
            if (ids.put(anchor, Ids.checkTuple(Ids.parse(match.group(2)))) != null) {
                throw AckerException.refused("anchor %d occurs twice in one message id", anchor);
            }
        }
        if (ids.size() > MAX_TREES) {
            throw AckerException.refused("a message belongs to at most %d trees, not %d", MAX_TREES, ids.size());
        }
        return ids;
    }

    private static String format(Map<Long, Long> ids) {
        StringBuilder text = new StringBuilder();
        ids.forEach((anchor, id) -> text.append(text.isEmpty() ? "" : ",").append(anchor).append(':').append(id));
        return text.toString();
    }
}
