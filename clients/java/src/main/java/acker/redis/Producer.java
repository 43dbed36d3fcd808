package acker.redis;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * Folds the rows of many threads and sends them in batches.
 *
 * <p>A call returns when its rows are accepted, not when they are applied: see {@link #flush}. Rows wait
 * for {@code linger} for others to join them, or until a batch is full. The first rows wait, too, if Redis is
 * away when the program begins; a refusal, such as of the password, is thrown. A batch that was given up is
 * reported to {@code onGivenUp} and by the next {@code flush}; its trees expire, and their sources replay
 * them. While too many rows wait, callers wait too.
 *
 * <p>Close it, best by try-with-resources: rows that still wait when the process ends are lost, and their
 * trees expire. Thread-safe.
 */
public final class Producer implements AutoCloseable {
    private static final long MS = 1_000_000;

    private final Acker acker;
    private final long lingerNs;
    private final int buffer;
    private final long blockNs;
    private final BiConsumer<AckerException, Batch> onGivenUp;
    private final List<Thread> senders = new ArrayList<>();

    /** Guards the fields below; no thread holds it during a call of Redis. */
    private final Object lock = new Object();

    /** The batch of each shard that is being filled. */
    private final Map<Integer, Filling> filling = new HashMap<>();

    private final Deque<Batch> ready = new ArrayDeque<>();
    private final Set<Batch> inFlight = new HashSet<>();

    /** Number of shards; 0 until it is known, which the senders find out, and -1 after close. */
    private volatile int shards;

    private boolean started;
    private int waiting;
    private boolean closed;

    /** After close: the {@link System#nanoTime} after which nothing is sent. */
    private long end;
    private AckerException error;

    /** The flushes in progress: each receives the error of the batches that it waits for. */
    private final Set<Flush> flushes = new HashSet<>();

    private static final class Flush {
        final Set<Batch> batches = new HashSet<>();
        AckerException error;
    }

    private record Filling(Batch batch, long due) {}

    /** Settings of a producer; change the defaults by {@code new Settings().withLinger(..)}. */
    public record Settings(
            Duration linger, int senders, int buffer, Duration maxBlock, BiConsumer<AckerException, Batch> onGivenUp) {
        /** Creates the defaults: 2 ms linger, 2 senders, a buffer of 65,536 rows, 1 minute maxBlock. */
        public Settings() {
            this(Duration.ofMillis(2), 2, 65_536, Duration.ofMinutes(1), null);
        }

        /** Sets how long rows wait for others to join them. */
        public Settings withLinger(Duration linger) {
            return new Settings(linger, senders, buffer, maxBlock, onGivenUp);
        }

        /** Sets the maximum number of calls in flight, each on a separate lane. */
        public Settings withSenders(int senders) {
            return new Settings(linger, senders, buffer, maxBlock, onGivenUp);
        }

        /** Sets the number of waiting rows at which callers wait. */
        public Settings withBuffer(int buffer) {
            return new Settings(linger, senders, buffer, maxBlock, onGivenUp);
        }

        /** Sets how long callers wait before they get {@code FULL}. */
        public Settings withMaxBlock(Duration maxBlock) {
            return new Settings(linger, senders, buffer, maxBlock, onGivenUp);
        }

        /** Sets the callback for batches that were given up; it runs in a sender thread and must not wait. */
        public Settings withOnGivenUp(BiConsumer<AckerException, Batch> onGivenUp) {
            return new Settings(linger, senders, buffer, maxBlock, onGivenUp);
        }
    }

    /** Creates a producer with the default settings. */
    public Producer(Acker acker) {
        this(acker, new Settings());
    }

    /** Creates a producer. */
    public Producer(Acker acker, Settings settings) {
        if (settings.linger.isNegative() || settings.senders < 1 || settings.buffer < 1) {
            throw AckerException.refused("linger must be zero or more, senders and buffer at least 1");
        }
        this.acker = acker;
        lingerNs = settings.linger.toNanos();
        buffer = settings.buffer;
        blockNs = settings.maxBlock.toNanos();
        onGivenUp = settings.onGivenUp;
        for (int i = 0; i < settings.senders; i++) {
            Thread sender = new Thread(this::run, "acker-producer-" + i);
            sender.setDaemon(true);
            senders.add(sender);
        }
    }

    /** Begins to process messages, given by their ids as text; ack, fail and touch add rows to this producer. */
    public Processing process(String... messages) {
        return new Processing(this::add, acker::makerOf, messages);
    }

    /** Accepts all rows or, with FULL if Redis is too slow, or CLOSED, none. */
    private void add(List<Row> rows) {
        // The first rows do not wait: they go into one batch, which is divided when it is sent.
        int known = shards != 0 ? shards : acker.shards(isIdle());
        synchronized (lock) {
            if (closed) throw new AckerException("CLOSED", "this producer is closed and takes no more rows");
            if (shards == 0) shards = known;
            if (!started) senders.forEach(Thread::start);
            started = true;
            waitForRoom();
            for (Row row : rows) {
                int shard = Ids.shardOf(row.anchor(), Math.max(shards, 1));
                Filling its = filling.get(shard);
                if (its == null) {
                    its = new Filling(new Batch(), System.nanoTime() + lingerNs);
                    filling.put(shard, its);
                    lock.notifyAll(); // a sender has to wait for its due time
                }
                int before = its.batch.size();
                its.batch.add(row);
                waiting += its.batch.size() - before;
                if (its.batch.isFull()) {
                    ready.add(filling.remove(shard).batch);
                    lock.notifyAll();
                }
            }
        }
    }

    /**
     * Waits until all rows accepted so far are applied. Throws the error of the first batch that was given up
     * since the last flush, or during this one. Concurrent flushes all throw it. {@code onGivenUp} has then
     * returned for each of these batches, so a caller must not hold a lock that {@code onGivenUp} takes.
     */
    public void flush() {
        synchronized (lock) {
            checkMayWait();
            filling.values().forEach(each -> ready.add(each.batch));
            filling.clear();
            lock.notifyAll();
            Flush mine = new Flush();
            mine.batches.addAll(ready);
            mine.batches.addAll(inFlight);
            flushes.add(mine);
            try {
                while (mine.batches.stream().anyMatch(batch -> inFlight.contains(batch) || ready.contains(batch))) {
                    await(0);
                }
            } finally {
                flushes.remove(mine);
            }
            AckerException first = error == null ? mine.error : error;
            error = null;
            if (first != null) throw first;
        }
    }

    /** Flushes for up to 30 seconds, and closes. Throws the errors of flush. Idempotent. */
    @Override
    public void close() {
        close(Duration.ofSeconds(30));
    }

    /**
     * Flushes for up to this time, and closes; rows that were not sent by then are given up. Calls of
     * {@code onGivenUp} are waited for without a limit.
     */
    public void close(Duration timeout) {
        synchronized (lock) {
            if (closed) return;
            checkMayWait();
            closed = true;
            end = System.nanoTime() + timeout.toNanos();
        }
        try {
            flush();
        } finally {
            synchronized (lock) {
                shards = -1;
                lock.notifyAll();
            }
        }
    }

    private boolean isIdle() {
        synchronized (lock) {
            return waiting == 0;
        }
    }

    private void waitForRoom() {
        long end = System.nanoTime() + blockNs;
        while (waiting >= buffer && !senders.contains(Thread.currentThread())) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw new AckerException("FULL", waiting + " rows wait for Redis, and there was no room in time: Redis"
                        + " is too slow for this program, or unreachable");
            }
            await(left);
            if (closed) throw new AckerException("CLOSED", "this producer is closed and takes no more rows");
        }
    }

    private void checkMayWait() {
        if (senders.contains(Thread.currentThread())) {
            throw new AckerException("CLOSED",
                    "onGivenUp runs in a sender thread and must not call flush() or close()");
        }
    }

    private void run() {
        while (true) {
            Batch batch;
            AckerException failed = null;
            synchronized (lock) {
                while ((batch = next()) == null) {
                    if (shards < 0) return;
                    await(untilDue());
                }
                inFlight.add(batch);
                if (closed && System.nanoTime() - end > 0) {
                    failed = new AckerException("CLOSED", "the producer was closed before this batch was sent");
                }
            }
            try {
                if (failed == null) acker.apply(batch);
            } catch (AckerException given) {
                failed = given;
            } catch (RuntimeException | Error other) {
                // If the sender thread ended here, flush() would wait forever.
                failed = new AckerException("REDIS", "the batch cannot be sent: " + other, other);
            }
            synchronized (lock) {
                waiting -= batch.size(); // before the callback: these rows need no more room
                lock.notifyAll();
            }
            try {
                if (failed != null && onGivenUp != null) onGivenUp.accept(failed, batch);
            } catch (Throwable ours) { // also a checked exception: Kotlin and Scala throw it undeclared
                ours.printStackTrace();
            } finally {
                synchronized (lock) {
                    inFlight.remove(batch); // after the callback, so that a flush waits for it
                    if (failed != null && error == null) error = failed;
                    for (Flush each : flushes) {
                        if (each.error == null && each.batches.contains(batch)) each.error = failed;
                    }
                    lock.notifyAll();
                }
            }
        }
    }

    /** Returns a batch that is full, flushed, or has lingered; null if there is none. */
    private Batch next() {
        Batch first = ready.poll();
        if (first != null) return first;
        long now = System.nanoTime();
        for (Iterator<Filling> all = filling.values().iterator(); all.hasNext(); ) {
            Filling each = all.next();
            if (each.due - now <= 0) {
                all.remove();
                return each.batch;
            }
        }
        return null;
    }

    /** Returns the nanoseconds until the next batch has lingered; 0 if there is none. */
    private long untilDue() {
        long now = System.nanoTime();
        return filling.values().stream().mapToLong(each -> Math.max(each.due - now, 1)).min().orElse(0);
    }

    /** Waits for a notification, or for up to these nanoseconds; 0 means forever. Restores the interrupt flag. */
    private void await(long nanoseconds) {
        try {
            if (nanoseconds == 0) lock.wait();
            else lock.wait(nanoseconds / MS, (int) (nanoseconds % MS));
        } catch (InterruptedException interrupted) {
            if (senders.contains(Thread.currentThread())) return;
            Thread.currentThread().interrupt();
            throw new AckerException("UNAVAILABLE", "interrupted while it waited; accepted rows are still sent",
                    interrupted);
        }
    }
}
