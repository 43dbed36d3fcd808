package acker.redis;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Messages that are processed together, and the messages they caused: usually one input, several for a join.
 *
 * <p>A new message draws an edge id for each of its inputs; the row of an input is its own id XOR its edges.
 * Call {@link #ack} or {@link #fail} once; a message without either expires. The call closes the message
 * even if it throws, because its rows may have been applied: do not process the message again under new
 * ids, and let its trees expire. Only {@code REFUSED}, {@code FULL} and {@code CLOSED} leave the message
 * open, because no row was accepted. Thread-safe.
 */
public final class Processing {
    private static final Pattern PAIR = Pattern.compile("[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*");
    private static final int MAX_TEXT = 64 * 1024;
    private static final int MAX_TREES = MAX_TEXT / 40;

    private final Consumer<List<Row>> sink;
    private final List<Map<Long, Long>> inputs = new ArrayList<>();

    /** For each input, the XOR of its edges. */
    private final long[] edges;

    private String state = "";

    Processing(Consumer<List<Row>> sink, String... messages) {
        this.sink = sink;
        edges = new long[messages.length];
        Set<List<Long>> seen = new HashSet<>();
        for (String message : messages) {
            Map<Long, Long> ids = parse(message);
            ids.forEach((anchor, id) -> {
                if (!seen.add(List.of(anchor, id))) {
                    throw AckerException.refused("message %d:%d is given twice; its rows would cancel", anchor, id);
                }
            });
            inputs.add(ids);
        }
    }

    /**
     * Returns the id of a new message that all inputs caused. Send exactly one message with it.
     *
     * @return {@code <anchor>:<tuple>}, joined by commas; empty if no input is in a tree
     */
    public String emit() {
        int[] all = new int[edges.length];
        for (int i = 0; i < all.length; i++) all[i] = i;
        return emitFrom(all);
    }

    /** Returns the id of a new message that some inputs caused, by their places from 0; without any: unanchored. */
    public synchronized String emitFrom(int... places) {
        checkOpen();
        Set<Integer> distinct = new HashSet<>();
        for (int place : places) {
            if (place < 0 || place >= edges.length) {
                throw AckerException.refused("there is no input %d; inputs are numbered from 0", place);
            }
            if (!distinct.add(place)) throw AckerException.refused("input %d is given twice", place);
        }
        while (true) {
            long[] drawn = Ids.newTupleIds(places.length);
            Map<Long, Long> ids = new TreeMap<>();
            for (int i = 0; i < places.length; i++) {
                long edge = drawn[i];
                inputs.get(places[i]).keySet().forEach(anchor -> ids.merge(anchor, edge, (a, b) -> a ^ b));
            }
            if (ids.size() > MAX_TREES) {
                throw AckerException.refused("a message belongs to at most %d trees, not %d; emit several, each"
                        + " anchored to some of the inputs", MAX_TREES, ids.size());
            }
            if (ids.containsValue(0L)) continue; // edges that cancel, probability 2^-63
            for (int i = 0; i < places.length; i++) edges[places[i]] ^= drawn[i];
            return format(ids);
        }
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
            rows = rows(Row.TOUCH, "", false);
        }
        if (!rows.isEmpty()) sink.accept(rows);
    }

    private void end(String how, int flags, String why) {
        List<Row> rows;
        synchronized (this) {
            checkOpen();
            // From here on emit refuses: no row would contain its id.
            state = how;
            rows = rows(flags, why, true);
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

    private List<Row> rows(int flags, String why, boolean whole) {
        Map<Long, Long> deltas = new LinkedHashMap<>();
        for (int i = 0; i < edges.length; i++) {
            long edge = edges[i];
            inputs.get(i).forEach((anchor, id) -> deltas.merge(anchor, whole ? id ^ edge : 0L, (a, b) -> a ^ b));
        }
        List<Row> rows = new ArrayList<>();
        deltas.forEach((anchor, delta) -> rows.add(new Row(anchor, delta, flags, why)));
        return rows;
    }

    /** Returns the ids of a message by anchor, parsed from its text. */
    static Map<Long, Long> parse(String text) {
        if (text == null) throw AckerException.refused("a message id is text, not null; for an unanchored message, ''");
        if (text.length() > MAX_TEXT) {
            throw AckerException.refused("the text of a message id has at most %d characters, not %d",
                    MAX_TEXT, text.length());
        }
        Map<Long, Long> ids = new LinkedHashMap<>();
        if (text.isBlank()) return ids;
        for (String pair : text.split(",", -1)) {
            Matcher match = PAIR.matcher(pair);
            if (!match.matches()) {
                throw AckerException.refused("an anchored tuple is <anchor>:<tuple>, not %.50s", pair);
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
