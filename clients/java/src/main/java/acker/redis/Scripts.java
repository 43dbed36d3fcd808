package acker.redis;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The Lua scripts in this package, and functions to call them. */
final class Scripts {
    private record Script(byte[] source, byte[] sha) {}

    private static final Map<String, Script> LOADED = new ConcurrentHashMap<>();
    private static final byte[] EVALSHA = "EVALSHA".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] EVAL = "EVAL".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] TWO = {'2'};

    private Scripts() {}

    /** Calls a script once: by its SHA1, and by its source if Redis does not know the SHA1. */
    static Object call(Commands redis, String name, String shard, byte[]... argv) {
        Script script = LOADED.computeIfAbsent(name, Scripts::load);
        byte[] key = shard.getBytes(StandardCharsets.US_ASCII);
        byte[][] words = new byte[5 + argv.length][];
        words[0] = EVALSHA;
        words[1] = script.sha;
        words[2] = TWO;
        words[3] = key;
        words[4] = (shard + ":meta").getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(argv, 0, words, 5, argv.length);
        try {
            return send(redis, key, words);
        } catch (Commands.ReplyException error) {
            if (!error.getMessage().startsWith("NOSCRIPT")) throw AckerException.replied(error.getMessage());
        }
        words[0] = EVAL;
        words[1] = script.source;
        try {
            return send(redis, key, words);
        } catch (Commands.ReplyException error) {
            throw AckerException.replied(error.getMessage());
        }
    }

    /** Sends any other command once; its first argument is its key. */
    static Object plain(Commands redis, String... words) {
        byte[][] command = new byte[words.length][];
        for (int i = 0; i < words.length; i++) command[i] = words[i].getBytes(StandardCharsets.UTF_8);
        try {
            return send(redis, command[1], command);
        } catch (Commands.ReplyException error) {
            throw AckerException.replied(error.getMessage());
        }
    }

    private static Object send(Commands redis, byte[] key, byte[][] words) {
        try {
            return redis.send(key, words);
        } catch (Commands.ReplyException | AckerException error) {
            throw error;
        } catch (Exception error) {
            // After any other exception it is unknown whether the command has run.
            String said = error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
            throw AckerException.unavailable(said, error);
        }
    }

    private static Script load(String name) {
        try (InputStream file = Scripts.class.getResourceAsStream("lua/" + name + ".lua")) {
            if (file == null) {
                throw new IllegalStateException("lua/" + name + ".lua is missing in the jar: run make clients, and"
                        + " build the jar again");
            }
            byte[] source = file.readAllBytes();
            String sha = Ids.hex(Ids.sha1().digest(source), 20);
            return new Script(source, sha.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
