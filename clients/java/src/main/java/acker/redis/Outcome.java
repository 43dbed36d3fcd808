package acker.redis;

/**
 * The verdict on one tree.
 *
 * @param verdict {@code ack}: complete; {@code nack}: replay it; {@code touch}: its timeout was reset
 * @param reason completed, failed, expired, overflow, conflict or reset
 * @param sourceId the source id; for a tree in a block, the block's label
 * @param ageMs time from the tree's first row to the verdict
 * @param why the reason that the bolt gave when it failed the tree, or empty
 */
public record Outcome(String verdict, String reason, long anchor, String sourceId, String why, long ageMs) {}
