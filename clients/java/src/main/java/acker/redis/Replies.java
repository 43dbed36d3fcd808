package acker.redis;

import java.nio.charset.StandardCharsets;

/** Conversions of replies, whose types differ between Redis clients. */
final class Replies {
    private Replies() {}

    static long number(Object reply) {
        return reply instanceof Number number ? number.longValue() : Long.parseLong(text(reply));
    }

    static String text(Object reply) {
        return reply instanceof byte[] data ? new String(data, StandardCharsets.UTF_8) : String.valueOf(reply);
    }

    static byte[] bytes(Object reply) {
        return reply instanceof byte[] data ? data : String.valueOf(reply).getBytes(StandardCharsets.UTF_8);
    }
}
