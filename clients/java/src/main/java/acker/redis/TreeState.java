package acker.redis;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * A tree that is pending.
 *
 * @param task its source; empty if it was not tracked yet
 * @param sourceId the source's own id, or the block's label; of a tree that was not tracked, empty
 * @param checksum zero is complete, in a block that is not
 * @param failed whether somebody has failed it
 * @param why what was said then, or empty
 * @param ageMs since its first row, or since its block was tracked
 * @param expiring whether it will be nacked soon, whatever comes
 */
public record TreeState(
        long anchor, String task, String sourceId, long checksum, boolean failed, String why, long ageMs,
        boolean expiring) {

    /** Null if it is not pending, or is a slot that its block has not. */
    static TreeState parse(long anchor, int buckets, List<?> reply) {
        if (reply.size() < 3) return null;
        long now = Replies.number(reply.get(0));
        boolean expiring = Replies.number(reply.get(1)) >= buckets;
        ByteBuffer record = ByteBuffer.wrap(Replies.bytes(reply.get(2)));
        if (!Ids.inBlock(anchor)) {
            long checksum = record.getLong();
            boolean failed = (record.get() & 1) != 0;
            long first = milliseconds(record);
            String task = text(record, record.get() & 0xff);
            String said = text(record, record.remaining());
            boolean known = !task.isEmpty();
            return new TreeState(anchor, task, known ? said : "", checksum, failed, known ? "" : said,
                    now - first, expiring);
        }
        long first = milliseconds(record);
        int slots = record.getShort() & 0xffff;
        record.position(record.position() + 8);
        String task = text(record, record.get() & 0xff);
        String label = text(record, record.remaining());
        int slot = Ids.slotOf(anchor);
        if (slot >= slots) return null;
        long checksum = ByteBuffer.wrap(Replies.bytes(reply.get(3))).getLong(8 * slot);
        boolean failed = ((List<?>) reply.get(4)).stream().anyMatch(each -> Replies.number(each) == slot);
        return new TreeState(anchor, task, label, checksum, failed, Replies.text(reply.get(5)), now - first, expiring);
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
