package acker.redis;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Any error of this package; {@link #code()} identifies it, and the message says what to do.
 *
 * <p>Codes are those of the scripts (lua/README.md, Errors: {@code NAMESPACE}, {@code BACKLOG},
 * {@code CONFLICT}, ..) and these:
 *
 * <ul>
 *   <li>{@code REFUSED}: a row, a text or a setting is invalid; nothing was sent
 *   <li>{@code OVERFLOW}: the tree or block was nacked, because too much is pending; emit none of its messages
 *   <li>{@code UNAVAILABLE}: no reply came in time; a batch may have been applied. Apply the same
 *       object again, or drop it: its trees expire
 *   <li>{@code LATE}: the fence may have expired, so the batch may not be sent again; its trees expire
 *   <li>{@code LANE}: another process has used the lane; the batch may not be sent again
 *   <li>{@code FULL}: too many rows wait for Redis
 *   <li>{@code CLOSED}: the message or producer was already closed
 *   <li>{@code REDIS}: Redis replied with any other error
 * </ul>
 */
public final class AckerException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final Pattern OURS = Pattern.compile("ACKER ([A-Z]+) (.*)", Pattern.DOTALL);

    /** Prefix of Redis 6.2 before the error of a command inside a script. */
    private static final Pattern IN_SCRIPT =
            Pattern.compile("^(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )", Pattern.DOTALL);

    // From acker_redis/protocol/codes.py, by python -m proof.spec
    /** Transient states: start-up, failover, a migrating slot, a long script, a full disk. */
    private static final Pattern PASSING = Pattern.compile("^(ERR max number of clients reached|"
            + "MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF)\\b.*", Pattern.DOTALL);
    /** Refusals that may pass: memory is freed, a password or a right changes. */
    private static final Pattern PATIENT = Pattern.compile("^(OOM|NOAUTH|WRONGPASS|NOPERM)\\b.*", Pattern.DOTALL);
    /** Replies of a master that was replaced, or may be soon, and to a connection that could not authenticate. */
    private static final Pattern DEMOTED =
            Pattern.compile("^(LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\\b.*", Pattern.DOTALL);

    /** The lack of a right to a single command of a script: commands before it may have run. */
    private static final Pattern NO_RIGHT_IN_SCRIPT =
            Pattern.compile("The user executing the script can't |ACL failure in script: ");

    private final String code;
    private boolean mayPass;
    private boolean full;

    AckerException(String code, String words) {
        this(code, words, null);
    }

    AckerException(String code, String words, Throwable cause) {
        super(words, cause);
        this.code = code;
    }

    /** Returns the code of the error: see the class. */
    public String code() {
        return code;
    }

    /**
     * Returns whether Redis refused the call for a cause that may pass, such as a full memory or a password that
     * is being changed. The code is {@code REDIS}, and nothing was changed: apply the same batch again.
     */
    public boolean mayPass() {
        return mayPass;
    }

    /** Returns whether Redis refused the call because it is at maxmemory. */
    boolean isFull() {
        return full;
    }

    boolean is(String... codes) {
        for (String each : codes) {
            if (code.equals(each)) return true;
        }
        return false;
    }

    static AckerException refused(String words, Object... values) {
        return new AckerException("REFUSED", String.format(words, values));
    }

    /** Returns whether a server replied as a demoted master does: connect again. */
    static boolean isDemoted(String reply) {
        return DEMOTED.matcher(IN_SCRIPT.matcher(reply).replaceFirst("")).matches();
    }

    /** Returns the exception for an error reply of Redis. */
    static AckerException replied(String reply) {
        String words = IN_SCRIPT.matcher(reply).replaceFirst("");
        Matcher ours = OURS.matcher(words);
        if (ours.matches()) {
            return new AckerException(ours.group(1), ours.group(2));
        }
        if (PASSING.matcher(words).matches()) return unavailable(words, null);
        boolean full = words.startsWith("OOM ");
        AckerException refused = new AckerException("REDIS", full
                ? "Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower high_water,"
                        + " or let the sources take their outcomes"
                : "Redis refused the call: " + words);
        refused.full = full;
        refused.mayPass = PATIENT.matcher(words).matches() && !NO_RIGHT_IN_SCRIPT.matcher(words).find();
        return refused;
    }

    static AckerException unavailable(String words, Throwable cause) {
        return new AckerException("UNAVAILABLE",
                "Redis did not answer: " + words + "; is it running and reachable?", cause);
    }
}
