package acker.redis;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/**
 * Client of one namespace: tracks, acks and fails trees, and reads verdicts. Thread-safe.
 *
 * <p>While a batch is sent it has a lane for itself and a number, so a retried batch is applied once. A
 * batch without a reply is retried for {@code retryFor}, but never after its fence may have expired (N-1
 * ticks). A batch that Redis refuses with {@code BACKLOG} is retried in the same way.
 */
public final class Acker {
    // From lua/spec.json, by python -m proof.spec
    private static final int MAX_SHARDS = 1024;
    private static final int MIN_BUCKETS = 2;
    private static final int MAX_BUCKETS = 16;

    private static final long FIRST_PAUSE_MS = 20;
    private static final long LONGEST_PAUSE_MS = 500;
    private static final long MS = 1_000_000;
    private static final int ROWS_AT_ONCE = 256;
    private static final long IDS_RETRY_MS = 2000;
    private static final System.Logger LOG = System.getLogger("acker.redis");

    private final Commands redis;
    private final String namespace;
    private final long retryMs;

    /** Lanes without a call in flight or in doubt. */
    private final Deque<Batch.Lane> lanes = new ArrayDeque<>();

    private volatile Config known;

    /** The last maker of ids that was read; null until the edges and the salt are known. */
    private volatile IdMaker lastIds;

    /** The {@link System#nanoTime} of the next attempt to read them, after a first one; else 0. */
    private volatile long idsDue;

    /** Unlisted edges that the program has named: each is logged once. */
    private final Set<String> unlisted = ConcurrentHashMap.newKeySet();

    /** Configuration of the namespace; {@code reshard} is {@code ""} unless it is resharding. */
    record Config(int shards, int buckets, long tickMs, String reshard, IdMaker ids) {
        /** Returns for how long a fence holds at least. */
        long fenceMs() {
            return (buckets - 1) * tickMs;
        }
    }

    /** Creates a client that retries for up to ten seconds. */
    public Acker(Commands redis, String namespace) {
        this(redis, namespace, Duration.ofSeconds(10));
    }

    /** Creates a client that retries for up to {@code retryFor}; with zero it sends each call once. Sends nothing. */
    public Acker(Commands redis, String namespace, Duration retryFor) {
        if (retryFor.isNegative()) throw AckerException.refused("retryFor must be zero or more, not %s", retryFor);
        this.redis = redis;
        this.namespace = Ids.checkName("namespace", namespace);
        this.retryMs = retryFor.toMillis();
    }

    // A source

    /** A tracked tree: send one message with each of the ids. */
    public record Tree(long anchor, List<String> messages) {}

    /**
     * Begins a tree with the given number of first messages, and waits until it is applied. A tree without
     * messages is complete immediately.
     *
     * @throws AckerException {@code OVERFLOW} if the tree was nacked immediately: send none of its messages
     */
    public Tree track(String task, String sourceId, int messages) {
        return track(task, sourceId, messages, "");
    }

    /**
     * Begins a tree whose first messages travel on an edge of the namespace: if one of them is missing when the
     * tree expires, the verdict names the edge.
     *
     * @param edge the name of the edge, or empty
     * @throws AckerException {@code OVERFLOW} if the tree was nacked immediately: send none of its messages
     */
    public Tree track(String task, String sourceId, int messages, String edge) {
        if (messages < 0) throw AckerException.refused("a tree has 0 or more first messages, not %d", messages);
        Batch batch = new Batch(task);
        Ids.text("source id", sourceId, 1); // refuse invalid input before the configuration is read
        long anchor = Ids.newAnchor();
        long[] ids = newTupleIds(messages, edge);
        Applied applied = apply(batch.track(anchor, sourceId, ids));
        // The reply that was lost said whether a repeat was rejected. No message of the tree was sent yet,
        // so a tree that does not exist was nacked.
        boolean nacked = applied.repeated() && messages > 0 && !isPending(anchor);
        if (nacked || !applied.rejected().isEmpty()) {
            throw new AckerException("OVERFLOW", "tree " + sourceId + " was nacked, because too much is pending:"
                    + " send none of its messages; the source gets the nack");
        }
        List<String> texts = new ArrayList<>();
        for (long id : ids) texts.add(anchor + ":" + id);
        return new Tree(anchor, texts);
    }

    /**
     * Begins a block of trees, one for each delta, and waits until it is applied. The block's number is derived
     * from the salt of the namespace, the task and the label: a program that runs again tracks the same block.
     *
     * @param label must differ between attempts
     * @return the block's number, for {@link Ids#blockAnchor}
     * @throws AckerException {@code OVERFLOW} if the block was nacked immediately: send none of its messages
     * @see Batch#trackBlock
     */
    public long trackBlock(String task, String label, long... deltas) {
        // Refuse invalid input before the configuration is read.
        Ids.checkName("task", task);
        Ids.label(label);
        Batch.checkColumn(deltas);
        long block = ids().block(task, label);
        Applied applied = apply(new Batch(task).trackBlock(block, label, deltas));
        boolean nacked = !applied.rejectedBlocks().isEmpty();
        if (applied.repeated() && LongStream.of(deltas).anyMatch(delta -> delta != 0)) {
            nacked = !isPending(Ids.blockAnchor(block, 0));
        }
        if (nacked) {
            throw new AckerException("OVERFLOW", "block " + label + " was nacked: too much is pending, or an earlier"
                    + " block of this number is expiring; the source gets the nack, do not emit its messages");
        }
        return block;
    }

    /**
     * Draws distinct ids for messages that travel on an edge, for {@link Batch}. Their XOR is not zero.
     *
     * @param edge the name of the edge, or empty
     */
    public long[] newTupleIds(int count, String edge) {
        IdMaker maker = ids();
        long code = maker.code(edge);
        while (true) {
            long[] drawn = maker.draw(count);
            long delta = 0;
            for (long id : drawn) delta ^= id;
            // A tree with delta zero would be complete immediately, and two messages with one id would cancel.
            if (count == 0 || (delta != 0 && LongStream.of(drawn).distinct().count() == count)) {
                return LongStream.of(drawn).map(id -> id | code).toArray();
            }
        }
    }

    /** Returns the reader of a source's verdicts. */
    public Outcomes outcomes(String task) {
        return new Outcomes(this, task);
    }

    // A bolt

    /** Begins to process messages, given by their ids as text; ack, fail and touch are applied when they return. */
    public Processing process(String... messages) {
        return new Processing(rows -> {
            // A batch can hold this many failures; each row is whole, so rows may go into different batches.
            for (int from = 0; from < rows.size(); from += ROWS_AT_ONCE) {
                Batch batch = new Batch();
                rows.subList(from, Math.min(rows.size(), from + ROWS_AT_ONCE)).forEach(batch::add);
                apply(batch);
            }
        }, this::makerOf, messages);
    }

    // Any program

    /**
     * Applies a batch. After an error, apply the same object again if it may be sent again.
     *
     * @throws AckerException {@code UNAVAILABLE} if no reply came: apply the batch again, or drop it
     */
    public Applied apply(Batch batch) {
        synchronized (batch) {
            try {
                return applyParts(batch);
            } catch (AckerException error) {
                if (!error.is("SHARD", "NAMESPACE")) throw error;
                resharded(batch, error);
            }
            int before = batch.sent.shards;
            batch.sent = null;
            Config config = readConfig();
            if (!config.reshard.isEmpty() && config.shards == before) {
                throw new AckerException("BACKLOG", namespace + " is resharding, nothing is tracked; try again");
            }
            try {
                return applyParts(batch);
            } catch (AckerException error) {
                if (error.is("SHARD", "NAMESPACE")) {
                    resharded(batch, error);
                    batch.sent = null;
                }
                throw error;
            }
        }
    }

    /** Returns whether a tree is pending, and not in the bucket that is expiring. */
    private boolean isPending(long anchor) {
        byte[] argument = ByteBuffer.allocate(8).putLong(anchor).array();
        boolean fresh = known == null;
        while (true) {
            Config config = config();
            String shard = shard(Ids.shardOf(anchor, config.shards));
            try {
                List<?> reply = (List<?>) patient(() -> Scripts.call(redis, "show", shard, argument));
                return reply.size() > 1 && Replies.number(reply.get(1)) < config.buckets;
            } catch (AckerException error) {
                known = null;
                if (fresh || !error.is("SHARD", "NAMESPACE")) throw error;
                fresh = true; // the known configuration may be from before a reshard
            }
        }
    }

    /** Applies a batch under a given lane, sending each call once. Only for the cases. */
    Applied applyAs(Batch batch, String producer, long seq, String digest) {
        int shards = batch.isEmpty() ? 1 : config().shards;
        List<Part> parts = batch.parts(shards);
        Part.Reply[] replies = new Part.Reply[parts.size()];
        for (int i = 0; i < replies.length; i++) {
            String fence = producer.isEmpty() ? "" : (seq + i) + (digest.isEmpty() ? "" : ":" + digest);
            replies[i] = parts.get(i).read(call(parts.get(i), producer, fence));
            checkLane(producer, seq + i, replies[i]);
        }
        return combine(parts, replies);
    }

    /** Runs an idempotent call until it is answered or no time is left for a retry. */
    <T> T patient(Supplier<T> call) {
        Pauses pauses = new Pauses();
        while (true) {
            try {
                return call.get();
            } catch (AckerException error) {
                if (!error.is("UNAVAILABLE")) throw error;
                pauses.after(error, Long.MAX_VALUE);
            }
        }
    }

    Commands redis() {
        return redis;
    }

    String namespace() {
        return namespace;
    }

    /** Returns the number of shards; 0 if it is unknown and Redis does not answer; {@code asks}: send a call. */
    int shards(boolean asks) {
        Config config = known;
        try {
            return config != null ? config.shards : asks ? parsed(status()).shards : 0;
        } catch (AckerException error) {
            if (!error.is("UNAVAILABLE")) throw error;
            return 0;
        }
    }

    IdMaker ids() {
        return config().ids;
    }

    /**
     * Returns what makes ids. If the configuration is not known, it is read once, and while Redis does not answer,
     * ids are made that are right in any namespace. For a derived id it is read with patience.
     */
    IdMaker makerOf(boolean derived) {
        Config config = known;
        if (config != null || derived) return config != null ? config.ids : ids();
        IdMaker last = lastIds;
        long begun = System.nanoTime();
        if (last == null && idsDue != 0 && begun - idsDue < 0) return IdMaker.UNKNOWN;
        try {
            return parsed(status()).ids;
        } catch (AckerException error) {
            if (last != null) return last;
            if (!error.is("UNAVAILABLE")) throw error;
            if (idsDue == 0) {
                LOG.log(System.Logger.Level.WARNING, namespace + ": messages that are emitted now carry no edge, because"
                        + " edges and salt could not be read; a verdict cannot tell on which edge one is lost: "
                        + error.getMessage());
            }
            long now = System.nanoTime();
            idsDue = now + Math.max(IDS_RETRY_MS * MS, 10 * (now - begun));
            return IdMaker.UNKNOWN;
        }
    }

    /** Returns the prefix of all keys of a shard, with the hash tag that decides its node. */
    String shard(int number) {
        return "acker:{" + namespace + ":" + number + "}";
    }

    private Applied applyParts(Batch batch) {
        if (batch.isEmpty()) return combine(List.of(), new Part.Reply[0]);
        // A retry needs the current configuration: it says for how long the fence holds.
        Config config = batch.sent == null || batch.sent.done ? config() : readConfig();
        if (batch.sent == null) {
            batch.sent = new Batch.Sent(namespace, batch.parts(config.shards), config.shards, borrow());
        }
        Batch.Sent sent = batch.sent;
        if (!sent.namespace.equals(namespace)) {
            throw AckerException.refused("this batch was sent to %s before; make another for %s",
                    sent.namespace, namespace);
        }
        sent.fenceMs = Math.min(sent.fenceMs, config.fenceMs());
        for (int i = 0; i < sent.replies.length; i++) {
            if (sent.replies[i] == null) sent.replies[i] = applyPart(sent, i);
        }
        if (!sent.done) {
            // Only a lane whose calls are all answered may be reused: no number of it is in doubt.
            sent.done = true;
            giveBack(sent.lane);
        }
        return combine(sent.parts, sent.replies);
    }

    private Part.Reply applyPart(Batch.Sent sent, int i) {
        Part part = sent.parts.get(i);
        String fence = (sent.first + i) + ":" + part.digest();
        Pauses pauses = new Pauses();
        while (true) {
            if (sent.times[i] == null) sent.times[i] = System.nanoTime();
            long left = sent.fenceMs - (System.nanoTime() - sent.times[i]) / MS;
            if (left <= 0) {
                throw new AckerException("LATE", "this batch was first sent too long ago to be sent again: its fence"
                        + " may have expired; let its trees expire");
            }
            boolean again = sent.doubt[i];
            sent.doubt[i] = true;
            try {
                Part.Reply reply = part.read(call(part, sent.lane.name, fence));
                checkLane(sent.lane.name, sent.first + i, reply);
                return reply;
            } catch (AckerException error) {
                boolean refused = error.mayPass() || error.is("SHARD", "NAMESPACE", "BACKLOG");
                if (refused && !again) sent.doubt[i] = false;
                boolean passes = error.mayPass() && !(error.isFull() && part.onlyTracks());
                if (!error.is("UNAVAILABLE", "BACKLOG") && !passes) throw error;
                pauses.after(error, left);
                if (!error.is("BACKLOG")) shorten(sent);
            }
        }
    }

    /** Reads for how long a fence holds now. A refusal that may pass is left to the next call. */
    private void shorten(Batch.Sent sent) {
        try {
            sent.fenceMs = Math.min(sent.fenceMs, readConfig().fenceMs());
        } catch (AckerException error) {
            if (!error.mayPass()) throw error;
        }
    }

    private Object call(Part part, String producer, String fence) {
        byte[][] argv = new byte[2 + part.argv.size()][];
        argv[0] = producer.getBytes(StandardCharsets.UTF_8);
        argv[1] = fence.getBytes(StandardCharsets.US_ASCII);
        for (int i = 2; i < argv.length; i++) argv[i] = part.argv.get(i - 2);
        return Scripts.call(redis, part.script, shard(part.shard), argv);
    }

    private static void checkLane(String producer, long seq, Part.Reply reply) {
        if (reply.highest() > seq) {
            throw new AckerException("LANE", "lane " + producer + " is at " + reply.highest() + ", this batch is "
                    + seq + ": a later batch, or another process, has used the lane; this batch is not applied again");
        }
    }

    private static Applied combine(List<Part> parts, Part.Reply[] replies) {
        long tracked = 0;
        long acked = 0;
        long failed = 0;
        boolean repeated = false;
        List<Long> rejected = new ArrayList<>();
        List<Long> rejectedBlocks = new ArrayList<>();
        for (int i = 0; i < replies.length; i++) {
            Part.Reply reply = replies[i];
            tracked += reply.tracked();
            acked += reply.acked();
            failed += reply.failed();
            repeated |= reply.highest() >= 0;
            (parts.get(i).script.equals("apply") ? rejected : rejectedBlocks).addAll(reply.rejected());
        }
        return new Applied(tracked, acked, failed, List.copyOf(rejected), List.copyOf(rejectedBlocks), repeated);
    }

    /** Forgets the configuration; throws if a part of the batch may have been applied, so it cannot be repacked. */
    private void resharded(Batch batch, AckerException error) {
        known = null;
        if (batch.sent == null) throw error;
        if (!batch.sent.refused()) {
            throw new AckerException(error.code(), error.getMessage() + ". A part of this batch may have been applied"
                    + " before, so the rest cannot be sent to other shards: give it up. Its trees expire; track those"
                    + " again that get no verdict", error);
        }
    }

    private Config config() {
        Config config = known;
        return config == null ? readConfig() : config;
    }

    private Config readConfig() {
        return parsed(patient(this::status));
    }

    private Object status() {
        return Scripts.call(redis, "status", shard(0));
    }

    private Config parsed(Object reply) {
        List<?> flat = (List<?>) ((List<?>) reply).get(5);
        Map<String, String> meta = new HashMap<>();
        for (int i = 0; i < flat.size(); i += 2) meta.put(Replies.text(flat.get(i)), Replies.text(flat.get(i + 1)));
        try {
            int buckets = Integer.parseInt(meta.get("buckets"));
            long tickMs = Long.parseLong(meta.get("tick_ms"));
            if (buckets < MIN_BUCKETS || buckets > MAX_BUCKETS || tickMs < 1 || tickMs > 1_000_000_000_000L) throw tampered();
            Config config = new Config(shardsOf(meta.get("shards")), buckets, tickMs, meta.getOrDefault("reshard", ""),
                    new IdMaker(meta.getOrDefault("edges", ""), meta.getOrDefault("salt", ""), unlisted));
            known = config;
            lastIds = config.ids;
            return config;
        } catch (IllegalArgumentException error) {
            throw tampered();
        }
    }

    /** Returns a number of shards that Redis holds: a power of two up to MAX_SHARDS. */
    int shardsOf(String text) {
        int shards = text != null && text.matches("[1-9][0-9]{0,3}") ? Integer.parseInt(text) : 0;
        if (shards < 1 || shards > MAX_SHARDS || Integer.bitCount(shards) != 1) throw tampered();
        return shards;
    }

    private AckerException tampered() {
        return new AckerException("SCHEMA", shard(0) + ":meta has been tampered with");
    }

    private Batch.Lane borrow() {
        synchronized (lanes) {
            return lanes.isEmpty() ? new Batch.Lane() : lanes.pop();
        }
    }

    private void giveBack(Batch.Lane lane) {
        synchronized (lanes) {
            lanes.push(lane);
        }
    }

    /** Pauses that get longer, until no time is left for a retry. */
    private final class Pauses {
        private final long end = System.nanoTime() + retryMs * MS;
        private long pause = FIRST_PAUSE_MS;

        /** Waits, or throws the error if no time is left; {@code leftMs} is a limit of the caller. */
        void after(AckerException error, long leftMs) {
            long wait = pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1);
            if (wait >= leftMs || (end - System.nanoTime()) / MS < wait) throw error;
            try {
                Thread.sleep(wait);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw error;
            }
            pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
        }
    }
}
