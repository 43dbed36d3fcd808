package acker.redis;

import java.io.IOException;

/**
 * All that this package asks of a Redis client: send one command, and read its reply.
 *
 * <p>{@link Resp} is one; Jedis and Lettuce take ten lines, see the README. Many threads call it at
 * once. It may send a command again by itself: what is applied stands under a fence.
 */
@FunctionalInterface
public interface Commands {
    /**
     * Send a command.
     *
     * @param key decides which node of a cluster gets it, by its hash tag; it is one of the arguments
     * @param command the name of the command, and its arguments
     * @return a {@code Long}, a {@code byte[]}, a {@code String} (a status), a {@code List} of such,
     *     or null
     * @throws ReplyException if Redis has replied with an error
     * @throws IOException or any other exception, if no reply came: the command may have run
     */
    Object send(byte[] key, byte[]... command) throws IOException;

    /** Redis has replied with an error; the message is what it said. */
    final class ReplyException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        /** With the words of the reply, as {@code "NOSCRIPT No matching script."} */
        public ReplyException(String words) {
            super(words, null, false, false);
        }
    }
}
