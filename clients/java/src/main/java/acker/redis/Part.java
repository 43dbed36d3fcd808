package acker.redis;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;

/** One call of a script, which is applied completely or not at all, under its own number. */
final class Part {
    // From lua/spec.json, by python -m proof.spec
    private static final int MAX_CALL = 1024 * 1024;

    private static final byte[] EMPTY = {};

    /** {@code apply} or {@code apply_blocks}. */
    final String script;

    final int shard;

    /** The arguments after the producer and the fence. */
    final List<byte[]> argv = new ArrayList<>();

    /** Anchors, or numbers of blocks, in the order of the call. */
    private final List<Long> names = new ArrayList<>();

    private int bytes;
    private String digest;

    private Part(String script, int shard) {
        this.script = script;
        this.shard = shard;
    }

    /** Returns the call for the loose rows of a shard. */
    static Part loose(int shard, List<Batch.Rows> rows, String task) {
        Part part = new Part("apply", shard);
        byte[] flags = new byte[rows.size()];
        ByteBuffer anchors = ByteBuffer.allocate(8 * flags.length);
        ByteBuffer deltas = ByteBuffer.allocate(8 * flags.length);
        List<byte[]> sources = new ArrayList<>();
        List<byte[]> whys = new ArrayList<>();
        for (int i = 0; i < flags.length; i++) {
            Batch.Rows row = rows.get(i);
            flags[i] = (byte) row.flags;
            anchors.putLong(row.anchor);
            deltas.putLong(row.delta);
            if ((row.flags & Row.TRACK) != 0) sources.add(row.source);
            if ((row.flags & Row.FAIL) != 0) whys.add(row.why);
            part.names.add(row.anchor);
        }
        String owner = sources.isEmpty() ? "" : task;
        part.argv.addAll(List.of(flags, anchors.array(), deltas.array(), owner.getBytes(StandardCharsets.US_ASCII)));
        part.argv.addAll(sources);
        part.argv.addAll(whys);
        return part;
    }

    /** Returns the fewest calls that can carry these blocks of a shard, in this order. */
    static List<Part> blocks(int shard, List<Batch.Block> blocks, String task) {
        List<Part> calls = new ArrayList<>();
        Part call = null;
        for (Batch.Block block : blocks) {
            List<byte[]> packed = pack(block, task);
            int bytes = packed.stream().mapToInt(each -> each.length).sum();
            if (call == null || call.names.size() == Batch.MAX_BLOCKS || call.bytes + bytes > MAX_CALL) {
                call = new Part("apply_blocks", shard);
                calls.add(call);
            }
            call.argv.addAll(packed);
            call.names.add(block.number);
            call.bytes += bytes;
        }
        return calls;
    }

    /** Returns the seven arguments of a block; {@code present} is empty, because each slot holds a tree. */
    private static List<byte[]> pack(Batch.Block block, String task) {
        List<Batch.Rows> rows = block.rows.stream().sorted((a, b) -> Long.compare(a.anchor, b.anchor)).toList();
        int flags = 0;
        ByteArrayOutputStream failed = new ByteArrayOutputStream();
        for (Batch.Rows row : rows) {
            flags |= row.flags & Row.TOUCH;
            if ((row.flags & Row.FAIL) != 0) {
                failed.writeBytes(ByteBuffer.allocate(3).putShort((short) Ids.slotOf(row.anchor))
                        .put((byte) row.why.length).array());
                failed.writeBytes(row.why);
            }
        }
        byte[] header = EMPTY;
        byte[] slots = EMPTY;
        ByteBuffer deltas;
        if (block.deltas != null) {
            flags |= Row.TRACK;
            header = ByteBuffer.allocate(3 + task.length() + block.label.length).putShort((short) block.deltas.length)
                    .put((byte) task.length()).put(task.getBytes(StandardCharsets.US_ASCII)).put(block.label).array();
            long[] dense = block.deltas.clone();
            for (Batch.Rows row : rows) dense[Ids.slotOf(row.anchor)] ^= row.delta;
            deltas = ByteBuffer.allocate(8 * dense.length);
            deltas.asLongBuffer().put(dense);
        } else {
            List<Batch.Rows> named = rows.stream().filter(row -> row.delta != 0).toList();
            ByteBuffer at = ByteBuffer.allocate(2 * named.size());
            deltas = ByteBuffer.allocate(8 * named.size());
            for (Batch.Rows row : named) {
                at.putShort((short) Ids.slotOf(row.anchor));
                deltas.putLong(row.delta);
            }
            slots = at.array();
        }
        byte[] number = ByteBuffer.allocate(8).putLong(block.number).array();
        return List.of(new byte[] {(byte) flags}, number, header, EMPTY, slots, deltas.array(),
                failed.toByteArray());
    }

    /**
     * Returns whether each row begins a tree. Such rows do not wait for memory: their retries would hold up rows
     * that free some.
     */
    boolean onlyTracks() {
        boolean only = script.equals("apply");
        for (byte flags : argv.get(0)) only &= (flags & Row.TRACK) != 0;
        return only;
    }

    /** Returns 16 hex digits that identify the content of this call. */
    String digest() {
        if (digest == null) {
            MessageDigest hash = Ids.sha256();
            for (byte[] each : argv) {
                hash.update((each.length + " ").getBytes(StandardCharsets.US_ASCII));
                hash.update(each);
            }
            digest = Ids.hex(hash.digest(), 8);
        }
        return digest;
    }

    /** Parses the script's reply. */
    Reply read(Object reply) {
        List<?> fields = (List<?>) reply;
        if (Replies.number(fields.get(0)) == 0) {
            return new Reply(Replies.number(fields.get(1)), 0, 0, 0, List.of());
        }
        ByteBuffer numbers = ByteBuffer.wrap(Replies.bytes(fields.get(7)));
        List<Long> rejected = new ArrayList<>();
        while (numbers.hasRemaining()) rejected.add(names.get(numbers.getShort() & 0xffff));
        return new Reply(-1, Replies.number(fields.get(1)), Replies.number(fields.get(2)),
                Replies.number(fields.get(3)), rejected);
    }

    /** A reply; {@code highest} is the lane's highest number if the call was a repeat, else -1. */
    record Reply(long highest, long tracked, long acked, long failed, List<Long> rejected) {}
}
