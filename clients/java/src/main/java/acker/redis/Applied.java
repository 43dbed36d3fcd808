package acker.redis;

import java.util.List;

/**
 * The result of a batch, over all its calls.
 *
 * @param tracked number of trees that it began; this and the next two do not count calls that were repeats
 * @param acked number of trees that it completed
 * @param failed number of trees that were nacked, without the rejected ones
 * @param rejected anchors of trees that were nacked immediately, because too much is pending
 * @param rejectedBlocks numbers of blocks that were nacked immediately
 * @param repeated whether a call was a repeat whose first reply was lost: its counts and its rejected trees
 *     are unknown
 */
public record Applied(
        long tracked, long acked, long failed, List<Long> rejected, List<Long> rejectedBlocks, boolean repeated) {}
