package acker.redis;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Reads the verdicts of one source, over all shards: at least once, in no particular order.
 *
 * <p>Read the waiting entries, handle them, then take them. Entries that were not taken are read again,
 * also after a crash. A task has one reader; it may run in any thread.
 */
public final class Outcomes {
    // From lua/spec.json, by python -m proof.spec
    private static final int MAX_TAKE = 64;

    private final Acker acker;
    private final String task;

    Outcomes(Acker acker, String task) {
        this.acker = acker;
        this.task = Ids.checkName("task", task);
    }

    /** One entry of a stream; its outcomes are taken together. */
    public record Entry(int shard, String id, List<Outcome> outcomes) {}

    /** Reads up to {@code count} entries of each shard, oldest first; they are read again until they are taken. */
    public List<Entry> read(int count) {
        List<Entry> found = new ArrayList<>();
        String first = acker.shard(0);
        // A deleted stream reads like an empty one, so read the number of shards each time.
        Object said = acker.patient(() -> Scripts.plain(acker.redis(), "HGET", first + ":meta", "shards"));
        int shards = said == null ? 1 : acker.shardsOf(Replies.text(said));
        for (int number = 0; number < shards; number++) {
            String shard = acker.shard(number);
            Object reply = acker.patient(() -> Scripts.plain(acker.redis(),
                    "XRANGE", shard + ":outcomes:" + task, "-", "+", "COUNT", String.valueOf(count)));
            for (Object each : (List<?>) reply) {
                List<?> entry = (List<?>) each;
                List<?> flat = (List<?>) entry.get(1);
                Map<String, String> fields = new HashMap<>();
                for (int i = 0; i < flat.size(); i += 2) {
                    fields.put(Replies.text(flat.get(i)), Replies.text(flat.get(i + 1)));
                }
                found.add(new Entry(number, Replies.text(entry.get(0)), outcomes(fields)));
            }
        }
        return found;
    }

    /**
     * Deletes handled entries; entries that were already deleted are skipped.
     *
     * @return the number of verdicts that they held; too low if a reply was lost
     */
    public long take(Collection<Entry> entries) {
        Map<Integer, List<byte[]>> ids = new LinkedHashMap<>();
        for (Entry entry : entries) {
            ids.computeIfAbsent(entry.shard(), shard -> new ArrayList<>()).add(Replies.bytes(entry.id()));
        }
        long taken = 0;
        for (Map.Entry<Integer, List<byte[]>> its : ids.entrySet()) {
            List<byte[]> left = its.getValue();
            while (!left.isEmpty()) {
                List<byte[]> argv = new ArrayList<>(left.subList(0, Math.min(MAX_TAKE, left.size())));
                argv.add(0, Replies.bytes(task));
                // Idempotent: take skips deleted entries.
                List<?> reply = (List<?>) acker.patient(() ->
                        Scripts.call(acker.redis(), "take", acker.shard(its.getKey()), argv.toArray(new byte[0][])));
                taken += Replies.number(reply.get(1));
                left = left.subList((int) Replies.number(reply.get(3)), left.size());
            }
        }
        return taken;
    }

    /**
     * Passes each waiting outcome to the handler, and takes an entry after all its outcomes were handled. An
     * exception of the handler ends the call; entries that were not taken are read again later.
     *
     * @return the number of handled outcomes
     */
    public long handle(Consumer<Outcome> handler) {
        long handled = 0;
        List<Entry> entries;
        while (!(entries = read(1)).isEmpty()) {
            for (Entry entry : entries) {
                entry.outcomes().forEach(handler);
                handled += entry.outcomes().size();
                take(List.of(entry));
            }
        }
        return handled;
    }

    private List<Outcome> outcomes(Map<String, String> fields) {
        try {
            List<Outcome> outcomes = fields.containsKey("block") ? block(fields) : loose(fields);
            // If a bitmap is lost, there are more verdicts: acks of trees that failed before, or do not exist.
            if (outcomes.size() != Integer.parseInt(fields.get("n"))) throw new IllegalArgumentException("n");
            return outcomes;
        } catch (AckerException error) {
            throw error;
        } catch (RuntimeException error) {
            throw new AckerException("SCHEMA", "an entry of the outcomes cannot be parsed; has another program written"
                    + " it?", error);
        }
    }

    private List<Outcome> loose(Map<String, String> fields) {
        List<Outcome> outcomes = new ArrayList<>();
        String reason = fields.get("reason");
        for (Object each : (List<?>) Json.parse(fields.get("rows"))) {
            List<?> row = (List<?>) each;
            long anchor = hex(row.get(0));
            String sourceId = (String) row.get(1);
            long age = (Long) row.get(2);
            String text = (String) row.get(3);
            outcomes.add(reason.equals("expired")
                    ? expired(anchor, sourceId, age, text, hex(row.get(4)), (Long) row.get(5))
                    : new Outcome(fields.get("verdict"), reason, anchor, sourceId, text, age));
        }
        return outcomes;
    }

    private Outcome expired(long anchor, String sourceId, long age, String cause, long residual, long idle) {
        List<String> edges = acker.ids().edgesOf(residual);
        return new Outcome("nack", "expired", anchor, sourceId, "", age, cause, residual, idle, edges);
    }

    private static long hex(Object digits) {
        return Long.parseUnsignedLong((String) digits, 16);
    }

    /** Returns the single verdicts of a block's entry, slot by slot. */
    private List<Outcome> block(Map<String, String> fields) {
        String verdict = fields.get("verdict");
        String reason = fields.get("reason");
        String label = fields.get("label");
        long block = Long.parseLong(fields.get("block"), 16);
        long age = Long.parseLong(fields.get("age"));
        List<Outcome> outcomes = new ArrayList<>();
        if (fields.containsKey("rows")) {
            for (Object each : (List<?>) Json.parse(fields.get("rows"))) {
                List<?> row = (List<?>) each;
                long anchor = Ids.blockAnchor(block, ((Long) row.get(0)).intValue());
                outcomes.add(new Outcome(verdict, reason, anchor, label, (String) row.get(1), age));
            }
            return outcomes;
        }
        int slots = Integer.parseInt(fields.get("slots"));
        boolean mixed = verdict.equals("mixed");
        String before = fields.getOrDefault("failed", "");
        BitSet failed = before.isEmpty() ? new BitSet() : Slots.parse(before, slots);
        BitSet present = fields.containsKey("present") ? Slots.parse(fields.get("present"), slots) : null;
        BitSet nacked = mixed ? Slots.parse(fields.get("nacked"), slots) : new BitSet();
        String residuals = mixed ? fields.get("residuals") : "";
        long idle = mixed ? Long.parseLong(fields.get("idle")) : 0;
        if (slots < 1 || slots > Ids.SLOTS || residuals.length() != 16 * nacked.cardinality()) {
            throw new IllegalArgumentException(slots + " slots, or " + residuals.length() + " digits of residuals");
        }
        int at = 0;
        for (int slot = 0; slot < slots; slot++) {
            String residual = nacked.get(slot) ? residuals.substring(at, at += 16) : "";
            if (failed.get(slot) || present != null && !present.get(slot)) {
                continue; // it was nacked when it failed, or holds no tree
            }
            long anchor = Ids.blockAnchor(block, slot);
            outcomes.add(!residual.isEmpty()
                    ? expired(anchor, label, age, fields.get("cause"), hex(residual), idle)
                    : new Outcome(mixed ? "ack" : verdict, mixed ? "completed" : reason, anchor, label, "", age));
        }
        return outcomes;
    }
}
