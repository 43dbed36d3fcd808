package acker.redis;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.regex.Pattern;

/**
 * Ids of anchors and tuples, and the rules for texts.
 *
 * <p>All ids fit a {@code long} without its sign bit. An anchor is 1 to 2^62-1; the anchor of a tree in a
 * block has bit 62 set. A tuple id is 1 to 2^63-1; a delta may also be 0. A negative number is out of
 * range, so signed comparisons are sufficient.
 */
public final class Ids {
    /** Highest anchor of a loose tree. */
    public static final long ANCHOR_MAX = (1L << 62) - 1;

    /** Highest tuple id. */
    public static final long TUPLE_MAX = Long.MAX_VALUE;

    /** Highest number of a block. */
    public static final long BLOCK_MAX = (1L << 50) - 1;

    // From lua/spec.json, by python -m proof.spec
    /** Maximum trees of a block. */
    public static final int SLOTS = 4095;
    static final int MAX_TEXT = 255;

    private static final long IN_BLOCK = 1L << 62;
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_.-]{1,64}");

    /** The end of the labels of Spark's blocks, whose slots are consecutive records. */
    private static final Pattern OF_SPARK = Pattern.compile("@(0|[1-9][0-9]{0,18})(~[1-9][0-9]{0,9})?\\z");

    private Ids() {}

    /** Returns an anchor, 1 to 2^62-1, from the system's random source. */
    public static long newAnchor() {
        while (true) {
            long anchor = RANDOM.nextLong() & ANCHOR_MAX;
            if (anchor != 0) return anchor;
        }
    }

    /**
     * Returns tuple ids or edge ids, each 1 to 2^63-1, from the system's random source. In a namespace with
     * edges use {@link Acker#newTupleIds}.
     */
    public static long[] newTupleIds(int count) {
        return draw(count, TUPLE_MAX);
    }

    /** Returns random numbers of the bits in {@code mask}, none of them 0. */
    static long[] draw(int count, long mask) {
        byte[] drawn = new byte[8 * count];
        RANDOM.nextBytes(drawn);
        long[] ids = new long[count];
        ByteBuffer.wrap(drawn).asLongBuffer().get(ids);
        for (int i = 0; i < count; i++) {
            ids[i] &= mask;
            if (ids[i] == 0) return draw(count, mask);
        }
        return ids;
    }

    /** Returns the anchor of a tree in a block. */
    public static long blockAnchor(long block, int slot) {
        if (slot < 0 || slot >= SLOTS) {
            throw AckerException.refused("a slot is a number from 0 to %d, not %d", SLOTS - 1, slot);
        }
        return IN_BLOCK | checkBlock(block) << 12 | slot;
    }

    /** Returns the shard of an anchor; all anchors of a block have one shard. {@code shards} is a power of two. */
    public static int shardOf(long anchor, int shards) {
        return (int) (inBlock(anchor) ? blockOf(anchor) : anchor) & (shards - 1);
    }

    static boolean inBlock(long anchor) {
        return (anchor & IN_BLOCK) != 0;
    }

    static long blockOf(long anchor) {
        return anchor >>> 12 & BLOCK_MAX;
    }

    static int slotOf(long anchor) {
        return (int) anchor & 0xfff;
    }

    static long checkAnchor(long anchor) {
        if (anchor < 1 || (inBlock(anchor) && slotOf(anchor) == SLOTS)) {
            throw AckerException.refused("an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree,"
                    + " not %s", Long.toUnsignedString(anchor));
        }
        return anchor;
    }

    static long checkTuple(long id) {
        if (id < 1) {
            throw AckerException.refused("a tuple id is a number from 1 to 2^63-1, not %s", Long.toUnsignedString(id));
        }
        return id;
    }

    static long checkBlock(long block) {
        if (block < 0 || block > BLOCK_MAX) {
            throw AckerException.refused("a block is a number from 0 to 2^50-1, not %s", Long.toUnsignedString(block));
        }
        return block;
    }

    static String checkName(String kind, String name) {
        if (name == null || !NAME.matcher(name).matches()) {
            throw AckerException.refused("a %s is 1 to 64 characters of A-Z a-z 0-9 _ . -, not %s", kind, name);
        }
        return name;
    }

    /** Returns the XOR of distinct tuple ids: two messages with the same id would cancel. */
    static long xor(long... ids) {
        long delta = 0;
        for (long id : ids) delta ^= checkTuple(id);
        if (ids.length > 1) {
            long[] sorted = ids.clone();
            Arrays.sort(sorted);
            for (int i = 1; i < sorted.length; i++) {
                if (sorted[i] == sorted[i - 1]) {
                    throw AckerException.refused("two messages have the same tuple id; draw an id for each");
                }
            }
        }
        return delta;
    }

    /** Returns the delta of a processed message: its id XOR the ids of all messages it caused. */
    static long whole(long tuple, long... emitted) {
        checkTuple(tuple);
        for (long id : emitted) {
            if (id == tuple) {
                throw AckerException.refused("a message and one that it caused have the same id; draw another");
            }
        }
        return tuple ^ xor(emitted);
    }

    /** Parses a decimal number of up to 64 bits without a sign; above 2^63-1 it is negative, and refused later. */
    static long parse(String digits) {
        if (digits.isEmpty() || digits.charAt(0) < '0' || digits.charAt(0) > '9') {
            throw AckerException.refused("an id is a decimal number without a sign, not %s", digits);
        }
        try {
            return Long.parseUnsignedLong(digits);
        } catch (NumberFormatException error) {
            throw AckerException.refused("an id is a decimal number of up to 64 bits, not %s", digits);
        }
    }

    /** Returns the UTF-8 of a source id, label or why; refuses a text that the scripts would refuse. */
    static byte[] text(String kind, String text, int least) {
        byte[] data = utf8(kind, text);
        if (data.length < least || data.length > MAX_TEXT) {
            throw AckerException.refused("a %s has %d to %d bytes, this one %d", kind, least, MAX_TEXT, data.length);
        }
        for (byte each : data) {
            if (each >= 0 && each < 32 || each == 127) {
                throw AckerException.refused("a %s must not contain control characters", kind);
            }
        }
        return data;
    }

    /** Returns the UTF-8 of the label of a block; refuses those that only Spark uses. */
    static byte[] label(String text) {
        byte[] data = text("label", text, 1);
        if (OF_SPARK.matcher(text).find()) {
            throw AckerException.refused("label %s ends in @ and a number, as only labels of Spark do; use another",
                    text);
        }
        return data;
    }

    /** Returns a text as a why: cut to 255 bytes, with control characters replaced. */
    static String clip(String words) {
        StringBuilder short_ = new StringBuilder();
        int left = MAX_TEXT;
        for (int at = 0; at < words.length() && left > 0; ) {
            int letter = words.codePointAt(at);
            at += Character.charCount(letter);
            if (letter < 32 || letter == 127) letter = ' ';
            if (letter >= Character.MIN_SURROGATE && letter <= Character.MAX_SURROGATE) letter = '?';
            left -= letter < 0x80 ? 1 : letter < 0x800 ? 2 : letter < 0x10000 ? 3 : 4;
            if (left >= 0) short_.appendCodePoint(letter);
        }
        return short_.toString();
    }

    /** Returns the UTF-8 of a text; refuses half a surrogate pair, which getBytes would replace by a question mark. */
    static byte[] utf8(String kind, String text) {
        try {
            if (text == null) throw new CharacterCodingException();
            ByteBuffer data = StandardCharsets.UTF_8.newEncoder().onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT).encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw AckerException.refused("a %s is text that UTF-8 can encode", kind);
        }
    }

    static String newName() {
        byte[] name = new byte[16];
        RANDOM.nextBytes(name);
        return hex(name, 16);
    }

    static String hex(byte[] data, int count) {
        return HexFormat.of().formatHex(data, 0, count);
    }

    static MessageDigest sha256() {
        return digest("SHA-256");
    }

    static MessageDigest sha1() {
        return digest("SHA-1");
    }

    private static MessageDigest digest(String name) {
        try {
            return MessageDigest.getInstance(name);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // cannot happen: every JDK has it
        }
    }
}
