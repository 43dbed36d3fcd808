package acker.redis;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;
import java.util.List;
import java.util.regex.Pattern;

/**
 * The state of a pending tree.
 *
 * @param task the tree's source; empty if the tree was not tracked yet
 * @param sourceId the source id, or the block's label; empty if the tree was not tracked yet
 * @param checksum zero if the tree is complete, which is possible only in a block that is not yet complete
 * @param failed whether a bolt has failed it
 * @param why the reason of the failure, if it was not tracked yet; otherwise empty
 * @param ageMs time since its first row, or since its block was tracked
 * @param expiring whether the tree will be nacked soon regardless of further rows
 * @param idleMs time since its last row; in a block, since the last row of the block, to within a tick
 */
public record TreeState(
        long anchor, String task, String sourceId, long checksum, boolean failed, String why, long ageMs,
        boolean expiring, long idleMs) {

    /** The texts of a loose tree are stored as in JSON, with these two escapes. */
    private static final Pattern ESCAPED = Pattern.compile("\\\\([\"\\\\])");

    /** Returns null if the tree is not pending, or if its block has no tree in this slot. */
    static TreeState parse(long anchor, int buckets, List<?> reply) {
        if (reply.size() < 3) return null;
        long now = Replies.number(reply.get(0));
        boolean expiring = Replies.number(reply.get(1)) >= buckets;
        ByteBuffer record = ByteBuffer.wrap(Replies.bytes(reply.get(2)));
        checkRecord(anchor, record);
        if (!Ids.inBlock(anchor)) {
            long checksum = record.getLong();
            boolean failed = (record.get() & 1) != 0;
            long first = milliseconds(record);
            long last = first + (record.getInt() & 0xffffffffL);
            String task = text(record, record.get() & 0xff);
            String said = ESCAPED.matcher(text(record, record.remaining())).replaceAll("$1");
            boolean known = !task.isEmpty();
            return new TreeState(anchor, task, known ? said : "", checksum, failed, known ? "" : said,
                    now - first, expiring, Math.max(0, now - last));
        }
        long first = milliseconds(record);
        long last = first + (record.getInt() & 0xffffffffL);
        byte flags = record.get();
        boolean partial = (flags & 2) != 0;
        int slots = record.getShort() & 0xffff;
        record.position(record.position() + 8);
        String task = text(record, record.get() & 0xff);
        String label = text(record, record.remaining());
        int slot = Ids.slotOf(anchor);
        byte[] present = Replies.bytes(reply.get(5));
        BitSet failed = slots(Replies.bytes(reply.get(4)), slots);
        BitSet held = slots(present, slots);
        if (!partial) held.set(0, slots);
        boolean lost = (flags & 4) != 0 && failed.isEmpty() || held.isEmpty();
        BitSet others = (BitSet) failed.clone();
        others.andNot(held);
        ByteBuffer checksums = ByteBuffer.wrap(Replies.bytes(reply.get(3)));
        if (checksums.limit() != 8 * slots || partial != present.length > 0 || lost || !others.isEmpty()) {
            throw new AckerException("SCHEMA", "the block of anchor " + anchor
                    + " has lost its checksums, or the bitmap of its trees or of those that have failed");
        }
        if (!held.get(slot)) return null;
        return new TreeState(anchor, task, label, checksums.getLong(8 * slot), failed.get(slot), "", now - first,
                expiring, Math.max(0, now - last));
    }

    /** A record ends with the length of its task, the task, and a text; a tree in a block has a task, and a task a text. */
    private static void checkRecord(long anchor, ByteBuffer record) {
        int head = Ids.inBlock(anchor) ? 22 : 20;
        int task = record.limit() < head ? 255 : record.get(head - 1) & 0xff;
        int text = record.limit() - head - task;
        if (text < 0 || (task > 0 ? text == 0 : Ids.inBlock(anchor))) {
            throw new AckerException("SCHEMA", "the record of anchor " + anchor + " has been tampered with");
        }
    }

    private static BitSet slots(byte[] bitmap, int count) {
        return bitmap.length == 0 ? new BitSet() : Slots.parse(bitmap, count);
    }

    private static long milliseconds(ByteBuffer record) {
        return (record.getShort() & 0xffffL) << 32 | record.getInt() & 0xffffffffL;
    }

    private static String text(ByteBuffer record, int length) {
        byte[] data = new byte[length];
        record.get(data);
        return new String(data, StandardCharsets.UTF_8);
    }
}
