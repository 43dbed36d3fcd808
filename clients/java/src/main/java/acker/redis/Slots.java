package acker.redis;

import java.util.BitSet;
import java.util.HexFormat;

/** Bitmaps of the slots of a block: bit 7 of byte 0 is slot 0. */
final class Slots {
    private Slots() {}

    /** Returns the slots in a bitmap in hex; throws if it is not one of a block with {@code count} slots. */
    static BitSet parse(String hex, int count) {
        byte[] bitmap = HexFormat.of().parseHex(hex);
        BitSet slots = new BitSet(count);
        for (int slot = 0; slot < 8 * bitmap.length; slot++) {
            if ((bitmap[slot / 8] & 0x80 >> slot % 8) != 0) slots.set(slot);
        }
        if (bitmap.length != (count + 7) / 8 || slots.length() > count) {
            throw new AckerException("SCHEMA", hex + " is not a bitmap of " + count
                    + " slots; has another program written it?");
        }
        return slots;
    }
}
