package acker.redis;

import java.io.IOException;

/**
 * The interface that this package needs of a Redis client: send one command, and read its reply.
 *
 * <p>{@link Resp} implements it; for Jedis and Lettuce it takes ten lines, see the README. It must be
 * thread-safe. It may retry a command automatically: a fence makes each applied batch idempotent.
 */
@FunctionalInterface
public interface Commands {
    /**
     * Sends a command.
     *
     * @param key decides which node of a cluster receives the command, by its hash tag; one of the arguments
     * @param command the name of the command, and its arguments
     * @return a {@code Long}, a {@code byte[]}, a {@code String} (a status), a {@code List} of these,
     *     or null
     * @throws ReplyException if Redis has replied with an error
     * @throws IOException or any other exception, if no reply came: the command may have run
     */
    Object send(byte[] key, byte[]... command) throws IOException;

    /** An error reply of Redis; the message is its text. */
    final class ReplyException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        /** Creates the exception with the text of the reply, such as {@code "NOSCRIPT No matching script."} */
        public ReplyException(String words) {
            super(words, null, false, false);
        }
    }
}
