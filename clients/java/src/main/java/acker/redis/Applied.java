package acker.redis;

import java.util.List;

/**
 * What became of a batch, over all its calls.
 *
 * @param tracked trees that it began; as the next two, without calls that were repeats
 * @param acked trees that it completed
 * @param failed trees that were nacked, without the rejected
 * @param rejected anchors of trees that were nacked at once, for too much is pending
 * @param rejectedBlocks numbers of such blocks
 * @param repeated whether some call had been applied before, and its reply was lost: what it had to
 *     say is not known any more
 */
public record Applied(
        long tracked, long acked, long failed, List<Long> rejected, List<Long> rejectedBlocks, boolean repeated) {}
