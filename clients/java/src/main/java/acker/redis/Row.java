package acker.redis;

/**
 * The effect of one processed message on one of its trees. The row is whole: the message's own id XOR the
 * ids of all messages it caused. A row is never split.
 *
 * @param anchor the anchor of a loose tree, or of a tree in a block
 * @param delta 0 to 2^63-1
 * @param flags {@link #FAIL}, {@link #TOUCH} or 0
 * @param why the reason of a failure, up to 255 bytes
 */
public record Row(long anchor, long delta, int flags, String why) {
    // From lua/spec.json, by python -m proof.spec
    static final int TRACK = 1;
    public static final int FAIL = 2;
    public static final int TOUCH = 4;
}
