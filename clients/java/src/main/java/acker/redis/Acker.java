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
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/**
 * Client of one namespace: track, ack, fail, and hear the verdicts. Any thread may use it.
 *
 * <p>A batch goes by a lane of its own while it is sent, under a number, so that one that was sent
 * again is applied once. When no reply came it is sent again for as long as {@code retryFor} says, and
 * not after the fence has gone (N-1 ticks). A task whose backlog is full is waited for likewise.
 */
public final class Acker {
    private static final long FIRST_PAUSE_MS = 20;
    private static final long LONGEST_PAUSE_MS = 500;
    private static final long MS = 1_000_000;
    private static final int ROWS_AT_ONCE = 256;

    private final Commands redis;
    private final String namespace;
    private final long retryMs;

    /** Lanes on which no call is in flight, nor in doubt. */
    private final Deque<Batch.Lane> lanes = new ArrayDeque<>();

    private volatile Config known;

    /** What the namespace says of itself; {@code reshard} is {@code ""} unless it moves to other shards. */
    record Config(int shards, int buckets, long tickMs, String reshard) {
        /** For how long a fence holds at least. */
        long fenceMs() {
            return (buckets - 1) * tickMs;
        }
    }

    /** Sends again for up to ten seconds. */
    public Acker(Commands redis, String namespace) {
        this(redis, namespace, Duration.ofSeconds(10));
    }

    /** Sends again for up to {@code retryFor}; with zero each call is sent once. Nothing is asked yet. */
    public Acker(Commands redis, String namespace, Duration retryFor) {
        if (retryFor.isNegative()) throw AckerException.refused("retryFor is zero or more, not %s", retryFor);
        this.redis = redis;
        this.namespace = Ids.checkName("namespace", namespace);
        this.retryMs = retryFor.toMillis();
    }

    // A source

    /** A tree that was tracked: send one message with each of the ids. */
    public record Tree(long anchor, List<String> messages) {}

    /**
     * Begin a tree of so many first messages, and wait until that is applied. With none it is complete.
     *
     * @throws AckerException {@code OVERFLOW} if it was nacked at once: send nothing
     */
    public Tree track(String task, String sourceId, int messages) {
        if (messages < 0) throw AckerException.refused("a tree has no or more first messages, not %d", messages);
        long anchor = Ids.newAnchor();
        long[] ids = distinct(messages);
        Batch batch = new Batch(task).track(anchor, sourceId, ids);
        Applied applied = apply(batch);
        // What a repeat had rejected was in the reply that got lost. Nobody has a message yet, so a tree
        // that is not there was nacked.
        boolean gone = applied.repeated() && messages > 0 && show(anchor) == null;
        if (gone || !applied.rejected().isEmpty()) {
            throw new AckerException("OVERFLOW", "tree " + sourceId + " was nacked, too much is pending;"
                    + " send nothing of it, its source is told so");
        }
        List<String> texts = new ArrayList<>();
        for (long id : ids) texts.add(anchor + ":" + id);
        return new Tree(anchor, texts);
    }

    /**
     * Begin a block of trees, one for each delta, and wait until that is applied.
     *
     * @return its number, of which {@link Ids#blockAnchor} makes anchors
     * @throws AckerException {@code OVERFLOW} if it was nacked at once: send nothing
     * @see Batch#trackBlock
     */
    public long trackBlock(String task, long block, String label, long... deltas) {
        Applied applied = apply(new Batch(task).trackBlock(block, label, deltas));
        boolean gone = !applied.rejectedBlocks().isEmpty();
        if (applied.repeated() && LongStream.of(deltas).anyMatch(delta -> delta != 0)) {
            TreeState tree = show(Ids.blockAnchor(block, 0));
            gone = tree == null || tree.expiring();
        }
        if (gone) {
            throw new AckerException("OVERFLOW", "block " + label + " was nacked, too much is pending, or its last"
                    + " life expires just now; send nothing of it, its source is told so");
        }
        return block;
    }

    /** The verdicts of a source. */
    public Outcomes outcomes(String task) {
        return new Outcomes(this, task);
    }

    // A bolt

    /** Begin to process messages, by their ids as text; ack, fail and touch are applied at once. */
    public Processing process(String... messages) {
        return new Processing(rows -> {
            // So many failures go into a batch; each row is whole by itself.
            for (int from = 0; from < rows.size(); from += ROWS_AT_ONCE) {
                Batch batch = new Batch();
                rows.subList(from, Math.min(rows.size(), from + ROWS_AT_ONCE)).forEach(batch::add);
                apply(batch);
            }
        }, messages);
    }

    // Anybody

    /**
     * Apply a batch; the same object again after an error, if it is sent again at all.
     *
     * @throws AckerException {@code UNAVAILABLE} if no answer came: apply it again, or drop it
     */
    public Applied apply(Batch batch) {
        synchronized (batch) {
            try {
                return applyParts(batch);
            } catch (AckerException error) {
                if (!error.is("SHARD", "NAMESPACE")) throw error;
                moved(batch, error);
            }
            int before = batch.sent.shards;
            batch.sent = null;
            Config config = readConfig();
            if (!config.reshard.isEmpty() && config.shards == before) {
                throw new AckerException("BACKLOG", namespace + " moves to other shards just now; try again");
            }
            try {
                return applyParts(batch);
            } catch (AckerException error) {
                if (error.is("SHARD", "NAMESPACE")) {
                    moved(batch, error);
                    batch.sent = null;
                }
                throw error;
            }
        }
    }

    /** What is known of a tree, loose or in a block; null if it is not pending. */
    public TreeState show(long anchor) {
        byte[] argument = ByteBuffer.allocate(8).putLong(Ids.checkAnchor(anchor)).array();
        boolean fresh = known == null;
        while (true) {
            Config config = config();
            String shard = shard(Ids.shardOf(anchor, config.shards));
            try {
                Object reply = patient(() -> Scripts.call(redis, "show", shard, argument));
                return TreeState.parse(anchor, config.buckets, (List<?>) reply);
            } catch (AckerException error) {
                known = null;
                if (fresh || !error.is("SHARD", "NAMESPACE")) throw error;
                fresh = true; // that was of before it moved, say
            }
        }
    }

    /** Apply a batch under a lane that is given, each call once: for the vectors. */
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

    /** Run a call that may be run again, until it is answered. */
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

    int shards() {
        return config().shards;
    }

    /** Prefix of all keys of a shard, with the hash tag that decides its node. */
    String shard(int number) {
        return "acker:{" + namespace + ":" + number + "}";
    }

    private Applied applyParts(Batch batch) {
        if (batch.isEmpty()) return combine(List.of(), new Part.Reply[0]);
        // What was sent once may be sent again for as long as the namespace says now.
        Config config = batch.sent == null || batch.sent.done ? config() : readConfig();
        if (batch.sent == null) {
            batch.sent = new Batch.Sent(namespace, batch.parts(config.shards), config.shards, borrow());
        }
        Batch.Sent sent = batch.sent;
        if (!sent.namespace.equals(namespace)) {
            throw AckerException.refused("this batch was sent to %s; make another for %s", sent.namespace, namespace);
        }
        sent.fenceMs = Math.min(sent.fenceMs, config.fenceMs());
        for (int i = 0; i < sent.replies.length; i++) {
            if (sent.replies[i] == null) sent.replies[i] = applyPart(sent, i);
        }
        if (!sent.done) {
            // Only a lane of which all is known serves others: no number of it is in doubt.
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
                throw new AckerException("LATE", "this batch was first sent too long ago, its fence may be gone: it"
                        + " may not be sent again; its trees expire");
            }
            boolean again = sent.doubt[i];
            sent.doubt[i] = true;
            try {
                Part.Reply reply = part.read(call(part, sent.lane.name, fence));
                checkLane(sent.lane.name, sent.first + i, reply);
                return reply;
            } catch (AckerException error) {
                if (error.is("SHARD", "NAMESPACE", "BACKLOG") && !again) sent.doubt[i] = false;
                if (!error.is("UNAVAILABLE", "BACKLOG")) throw error;
                pauses.after(error, left);
                if (error.is("UNAVAILABLE")) {
                    sent.fenceMs = Math.min(sent.fenceMs, readConfig().fenceMs());
                }
            }
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
                    + seq + ": a later batch, or another process, has used the lane; it is not applied again");
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

    /** The shards are others by now: a batch of which something may be applied cannot be packed anew. */
    private void moved(Batch batch, AckerException error) {
        known = null;
        if (batch.sent == null) throw error;
        if (!batch.sent.refused()) {
            throw new AckerException(error.code(), error.getMessage() + ". Some of this batch may have been applied"
                    + " before, and the rest cannot be any more: give it up, its trees expire", error);
        }
    }

    private Config config() {
        Config config = known;
        return config == null ? readConfig() : config;
    }

    private Config readConfig() {
        List<?> reply = (List<?>) patient(() -> Scripts.call(redis, "status", shard(0)));
        List<?> flat = (List<?>) reply.get(5);
        Map<String, String> meta = new HashMap<>();
        for (int i = 0; i < flat.size(); i += 2) meta.put(Replies.text(flat.get(i)), Replies.text(flat.get(i + 1)));
        try {
            Config config = new Config(Integer.parseInt(meta.get("shards")), Integer.parseInt(meta.get("buckets")),
                    Long.parseLong(meta.get("tick_ms")), meta.getOrDefault("reshard", ""));
            known = config;
            return config;
        } catch (NumberFormatException error) {
            throw new AckerException("SCHEMA", shard(0) + ":meta has been tampered with");
        }
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

    private static long[] distinct(int count) {
        while (true) {
            long[] ids = Ids.newTupleIds(count);
            long delta = 0;
            for (long id : ids) delta ^= id;
            // XOR zero would be complete at once; two that are alike are once in 2^63.
            if (count == 0 || delta != 0) return ids;
        }
    }

    /** Ever longer pauses, until the time to try again is over. */
    private final class Pauses {
        private final long end = System.nanoTime() + retryMs * MS;
        private long pause = FIRST_PAUSE_MS;

        /** Wait, or throw the error if there is no time left; {@code leftMs} is a limit of the caller. */
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
