package acker.redis;

import java.util.List;

/**
 * The verdict on one tree.
 *
 * @param verdict {@code ack}: complete; {@code nack}: replay it; {@code touch}: its timeout was reset
 * @param reason completed, failed, expired, overflow, conflict or reset
 * @param sourceId the source id; for a tree in a block, the block's label
 * @param ageMs time from the tree's first row to the verdict
 * @param why the reason that the bolt gave when it failed the tree, or empty
 * @param cause of an expired tree: {@code idle} if no row came for long enough, {@code deadline} if it
 *     reached its deadline; otherwise empty
 * @param residual of an expired tree: the XOR of the ids of the outstanding messages. If one message is
 *     missing, this is its id. 0 if it is unknown
 * @param idleMs of an expired tree: time from its last row to the verdict; in a block, from the last row of
 *     the block, to within a tick
 * @param edges of an expired tree: the edges with an odd number of outstanding messages, by the residual
 */
public record Outcome(
        String verdict, String reason, long anchor, String sourceId, String why, long ageMs, String cause,
        long residual, long idleMs, List<String> edges) {

    /** Creates the verdict on a tree that did not expire. */
    Outcome(String verdict, String reason, long anchor, String sourceId, String why, long ageMs) {
        this(verdict, reason, anchor, sourceId, why, ageMs, "", 0, 0, List.of());
    }
}
