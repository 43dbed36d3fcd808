package acker.redis;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Rows folded per anchor, and blocks: at most 1024 anchors, 64 blocks and 64 KiB of texts.
 *
 * <p>Each method throws an {@link AckerException} ({@code REFUSED}) for invalid input, and leaves the batch
 * unchanged. {@link Acker#apply} applies the batch once; after an error the same object may be applied
 * again. Not thread-safe.
 */
public final class Batch {
    // From lua/spec.json, by python -m proof.spec
    /** Maximum anchors of a batch. */
    public static final int MAX_ROWS = 1024;
    static final int MAX_BLOCKS = 64;
    private static final int MAX_TEXTS = 64 * 1024;

    private static final byte[] EMPTY = {};

    final String task;

    /** The packed calls and their replies; while it is set, the batch accepts no rows. */
    Sent sent;

    private final Map<Long, Rows> rows = new LinkedHashMap<>();
    private final Map<Long, Block> blocks = new LinkedHashMap<>();
    private int texts;

    /** Creates a batch that tracks nothing. */
    public Batch() {
        task = "";
    }

    /** Creates a batch for the source that tracks, a name of 1 to 64 of {@code A-Z a-z 0-9 _ . -}. */
    public Batch(String task) {
        this.task = Ids.checkName("task", task);
    }

    /** All rows of one anchor, folded. */
    static final class Rows {
        final long anchor;
        long delta;
        int flags;
        byte[] source = EMPTY;
        byte[] why = EMPTY;

        Rows(long anchor) {
            this.anchor = anchor;
        }
    }

    /** A block: deltas and label if it is tracked, and the rows of its slots. */
    static final class Block {
        final long number;
        final List<Rows> rows = new ArrayList<>();
        byte[] label;
        long[] deltas;

        Block(long number) {
            this.number = number;
        }
    }

    /** Returns the number of anchors. */
    public int size() {
        return rows.size();
    }

    /** Returns whether the batch holds neither rows nor blocks. */
    public boolean isEmpty() {
        return rows.isEmpty() && blocks.isEmpty();
    }

    /** Returns whether another row might not fit. */
    public boolean isFull() {
        return rows.size() >= MAX_ROWS || texts > MAX_TEXTS - Ids.MAX_TEXT;
    }

    /**
     * Begins a tree with all its first messages; without messages it is complete immediately.
     *
     * @param anchor a new one for each attempt, see {@link Ids#newAnchor}
     * @param sourceId 1 to 255 bytes of UTF-8 without control bytes; the verdict contains it
     * @param emitted ids of all first messages
     */
    public Batch track(long anchor, String sourceId, long... emitted) {
        needTask();
        Rows before = rows.get(Ids.checkAnchor(anchor));
        if (Ids.inBlock(anchor)) {
            throw AckerException.refused("anchor %d is in a block; track the whole block by trackBlock()", anchor);
        }
        if (before != null && (before.flags & Row.TRACK) != 0) {
            throw AckerException.refused("anchor %d is tracked twice; draw a new anchor for each attempt", anchor);
        }
        byte[] text = Ids.text("source id", sourceId, 1);
        fold(anchor, Ids.xor(emitted), Row.TRACK, text).source = text;
        return this;
    }

    /**
     * Begins a block of trees, one for each delta; {@link Ids#blockAnchor} returns their anchors. Emit the
     * messages only after the block was applied and not rejected.
     *
     * @param block 0 to 2^50-1; {@link Acker#trackBlock} derives it
     * @param label the source's name for the block; the verdicts contain it. It must not end in {@code @} and
     *     a number, because labels of Spark do
     * @param deltas for each tree the XOR of the ids of its first messages; 0 for a tree without messages,
     *     which is complete
     */
    public Batch trackBlock(long block, String label, long... deltas) {
        needTask();
        Ids.checkBlock(block);
        byte[] text = Ids.label(label);
        checkColumn(deltas);
        if (blocks.containsKey(block)) {
            throw AckerException.refused("block %d is tracked twice; use another number for each attempt", block);
        }
        for (long anchor : rows.keySet()) {
            if (Ids.inBlock(anchor) && Ids.blockOf(anchor) == block) checkSlot(anchor, deltas.length);
        }
        if (blocks.size() == MAX_BLOCKS) {
            throw AckerException.refused("a batch tracks at most %d blocks; apply this one and begin another",
                    MAX_BLOCKS);
        }
        checkRoom(0, text.length);
        texts += text.length;
        Block tracked = new Block(block);
        tracked.label = text;
        tracked.deltas = deltas.clone();
        blocks.put(block, tracked);
        return this;
    }

    /** Acks a processed message; {@code emitted} are the ids of all messages that it caused. */
    public Batch ack(long anchor, long tuple, long... emitted) {
        fold(Ids.checkAnchor(anchor), Ids.whole(tuple, emitted), 0, EMPTY);
        return this;
    }

    /** Fails a tree, which is nacked immediately; {@code why} has up to 255 bytes. */
    public Batch fail(long anchor, String why) {
        return failed(anchor, why, 0);
    }

    /**
     * Fails a tree by a message that counts as processed: a block also waits for the messages of its
     * failed trees.
     */
    public Batch fail(long anchor, String why, long tuple, long... emitted) {
        return failed(anchor, why, Ids.whole(tuple, emitted));
    }

    /** Resets the timeout of a tree; for a tree in a block, that of the whole block. */
    public Batch touch(long anchor) {
        fold(Ids.checkAnchor(anchor), 0, Row.TOUCH, EMPTY);
        return this;
    }

    /** Folds in a whole row. */
    public Batch add(Row row) {
        Ids.checkAnchor(row.anchor());
        checkDelta(row.delta());
        if (row.flags() == Row.FAIL) return failed(row.anchor(), row.why(), row.delta());
        if (row.flags() != 0 && row.flags() != Row.TOUCH) {
            throw AckerException.refused("a row is an ack (0), FAIL or TOUCH, not %d", row.flags());
        }
        fold(row.anchor(), row.delta(), row.flags(), EMPTY);
        return this;
    }

    /** Returns the calls to send: the loose rows of each shard, then its blocks. */
    List<Part> parts(int shards) {
        Map<Integer, List<Rows>> loose = new LinkedHashMap<>();
        Map<Long, Block> all = new LinkedHashMap<>();
        for (Block block : blocks.values()) {
            Block copy = new Block(block.number);
            copy.label = block.label;
            copy.deltas = block.deltas;
            all.put(block.number, copy);
        }
        for (Rows row : rows.values()) {
            if (Ids.inBlock(row.anchor)) {
                all.computeIfAbsent(Ids.blockOf(row.anchor), Block::new).rows.add(row);
            } else {
                loose.computeIfAbsent(Ids.shardOf(row.anchor, shards), shard -> new ArrayList<>()).add(row);
            }
        }
        Map<Integer, List<Block>> packed = new LinkedHashMap<>();
        for (Block block : all.values()) {
            packed.computeIfAbsent((int) block.number & (shards - 1), shard -> new ArrayList<>()).add(block);
        }
        List<Part> parts = new ArrayList<>();
        loose.forEach((shard, its) -> parts.add(Part.loose(shard, its, task)));
        packed.forEach((shard, its) -> parts.addAll(Part.blocks(shard, its, task)));
        return parts;
    }

    /** Returns the folded rows; {@code onGivenUp} can read them from a batch that was given up. */
    public List<Row> rows() {
        Collection<Rows> all = rows.values();
        return all.stream().map(row -> new Row(row.anchor, row.delta, row.flags,
                new String(row.why, StandardCharsets.UTF_8))).toList();
    }

    private Batch failed(long anchor, String why, long delta) {
        byte[] text = Ids.text("why", why, 0);
        Rows before = rows.get(Ids.checkAnchor(anchor));
        if (before != null && before.why.length > 0) text = EMPTY; // the first why that is not empty wins
        Rows row = fold(anchor, delta, Row.FAIL, text);
        if (text.length > 0) row.why = text;
        return this;
    }

    private Rows fold(long anchor, long delta, int flags, byte[] text) {
        Rows row = rows.get(anchor);
        checkRoom(row == null ? 1 : 0, text.length);
        if (row == null) {
            Block tracked = Ids.inBlock(anchor) ? blocks.get(Ids.blockOf(anchor)) : null;
            if (tracked != null) checkSlot(anchor, tracked.deltas.length);
            row = new Rows(anchor);
            rows.put(anchor, row);
        }
        texts += text.length;
        row.delta ^= delta;
        row.flags |= flags;
        return row;
    }

    private void needTask() {
        if (task.isEmpty()) throw AckerException.refused("a TRACK row needs a source: use new Batch(task)");
    }

    private void checkRoom(int more, int bytes) {
        if (sent != null) throw AckerException.refused("this batch was already sent; add new rows to a new batch");
        if (rows.size() + more > MAX_ROWS || texts + bytes > MAX_TEXTS) {
            throw AckerException.refused("a batch has at most %d rows and %d bytes of source ids, labels and whys;"
                    + " apply this one and begin another", MAX_ROWS, MAX_TEXTS);
        }
    }

    static void checkColumn(long[] deltas) {
        if (deltas.length < 1 || deltas.length > Ids.SLOTS) {
            throw AckerException.refused("a block has 1 to %d trees, not %d", Ids.SLOTS, deltas.length);
        }
        for (long delta : deltas) checkDelta(delta);
    }

    private static void checkDelta(long delta) {
        if (delta < 0) {
            throw AckerException.refused("a delta is a number from 0 to 2^63-1, not %s", Long.toUnsignedString(delta));
        }
    }

    private static void checkSlot(long anchor, int slots) {
        if (Ids.slotOf(anchor) >= slots) {
            throw AckerException.refused("block %d has %d trees, but no slot %d",
                    Ids.blockOf(anchor), slots, Ids.slotOf(anchor));
        }
    }

    /** A packed batch: every retry sends the same calls. */
    static final class Sent {
        final String namespace;
        final List<Part> parts;
        final int shards;
        final Lane lane;
        final long first;
        final Part.Reply[] replies;
        final boolean[] doubt;

        /** When a part was first sent, by {@link System#nanoTime}; null if it was not sent yet. */
        final Long[] times;

        /** How long a part may be retried: the minimum of all configurations that were read. */
        long fenceMs = Long.MAX_VALUE;

        /** Whether all calls were answered and the lane was given back. */
        boolean done;

        Sent(String namespace, List<Part> parts, int shards, Lane lane) {
            this.namespace = namespace;
            this.parts = parts;
            this.shards = shards;
            this.lane = lane;
            first = lane.draw(parts.size());
            replies = new Part.Reply[parts.size()];
            doubt = new boolean[parts.size()];
            times = new Long[parts.size()];
        }

        /** Returns whether certainly nothing was applied, so the batch may be sent under other numbers. */
        boolean refused() {
            for (int i = 0; i < replies.length; i++) {
                if (doubt[i] || replies[i] != null) return false;
            }
            return true;
        }
    }

    /** A producer lane: a name that no other process has, increasing numbers, one call in flight. */
    static final class Lane {
        final String name = Ids.newName();
        private long seq;

        long draw(int count) {
            long first = seq + 1;
            seq += count;
            return first;
        }
    }
}
