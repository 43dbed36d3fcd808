package acker.redis;

/**
 * What one processed message did to one of its trees. It is whole: the message's own id XOR the ids
 * of all messages it caused, never split.
 *
 * @param anchor of a loose tree, or of one in a block
 * @param delta 0 to 2^63-1
 * @param flags {@link #FAIL}, {@link #TOUCH} or 0
 * @param why up to 255 bytes; of a failure
 */
public record Row(long anchor, long delta, int flags, String why) {
    static final int TRACK = 1;
    public static final int FAIL = 2;
    public static final int TOUCH = 4;
}
