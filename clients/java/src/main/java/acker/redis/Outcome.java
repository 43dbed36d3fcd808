package acker.redis;

/**
 * Verdict on one tree.
 *
 * @param verdict {@code ack}: complete; {@code nack}: replay it; {@code touch}: its clock was set back
 * @param reason completed, failed, expired, overflow, conflict or reset
 * @param sourceId of a tree in a block, the block's label
 * @param ageMs from the tree's first row to the verdict
 * @param why what the bolt said when it failed the tree, or empty
 */
public record Outcome(String verdict, String reason, long anchor, String sourceId, String why, long ageMs) {}
