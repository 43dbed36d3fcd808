package acker.redis;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Answers the requests of the test harness: see clients/DRIVER.md. */
final class Driver {
    private static final int ENTRIES = 64;
    private Resp redis;
    private Acker acker;
    private Producer producer;

    public static void main(String[] args) throws IOException {
        Driver driver = new Driver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            out.print(driver.answer(map(Json.parse(line))) + "\n");
            out.flush();
        }
        driver.end();
    }

    private String answer(Map<String, Object> asked) {
        try {
            return switch (text(asked, "op")) {
                case "connect" -> connect(asked);
                case "begin" -> begin(asked);
                case "apply" -> apply(asked);
                case "read" -> outcomes(acker.outcomes(text(asked, "task")).read(ENTRIES));
                case "take" -> take(acker.outcomes(text(asked, "task")));
                case "track" -> track(asked);
                case "track_block" -> trackBlock(asked);
                case "work" -> work(asked);
                case "flush" -> flush();
                case "bench" -> bench(asked);
                default -> throw AckerException.refused("unknown operation %s", asked.get("op"));
            };
        } catch (AckerException error) {
            return "{\"error\":" + quoted(error.code()) + ",\"message\":" + quoted(error.getMessage()) + "}";
        } catch (RuntimeException error) {
            error.printStackTrace();
            return "{\"error\":\"DRIVER\",\"message\":" + quoted(String.valueOf(error)) + "}";
        }
    }

    private String connect(Map<String, Object> asked) {
        end();
        String scheme = (Boolean) asked.get("cluster") ? "redis+cluster://" : "redis://";
        redis = Resp.connect(scheme + String.join(",", texts(asked, "nodes")), millis(asked, "timeout_ms"));
        return "{}";
    }

    private String begin(Map<String, Object> asked) {
        if (producer != null) closeProducer();
        acker = new Acker(redis, text(asked, "namespace"), millis(asked, "retry_ms"));
        producer = new Producer(acker, new Producer.Settings().withLinger(millis(asked, "linger_ms")));
        return "{}";
    }

    private String apply(Map<String, Object> asked) {
        String task = text(asked, "task");
        Batch batch = task.isEmpty() ? new Batch() : new Batch(task);
        for (Object each : list(asked, "rows")) {
            Map.Entry<String, Object> row = map(each).entrySet().iterator().next();
            add(batch, row.getKey(), map(row.getValue()));
        }
        String seq = text(asked, "seq");
        Applied applied = acker.applyAs(batch, text(asked, "producer"), seq.isEmpty() ? 0 : Ids.parse(seq),
                text(asked, "digest"));
        return "{\"tracked\":" + applied.tracked() + ",\"acked\":" + applied.acked() + ",\"failed\":" + applied.failed()
                + ",\"rejected\":" + ids(applied.rejected()) + ",\"rejected_blocks\":" + ids(applied.rejectedBlocks())
                + ",\"repeated\":" + applied.repeated() + "}";
    }

    private static void add(Batch batch, String verb, Map<String, Object> row) {
        if (verb.equals("track_block")) {
            batch.trackBlock(Ids.parse(text(row, "block")), text(row, "label"), numbers(row, "deltas"));
            return;
        }
        long anchor = Ids.parse(text(row, "anchor"));
        switch (verb) {
            case "track" -> batch.track(anchor, text(row, "source_id"), numbers(row, "emitted"));
            case "ack" -> batch.ack(anchor, Ids.parse(text(row, "tuple")), numbers(row, "emitted"));
            case "touch" -> batch.touch(anchor);
            case "fail" -> {
                if (row.containsKey("tuple")) {
                    batch.fail(anchor, text(row, "why"), Ids.parse(text(row, "tuple")), numbers(row, "emitted"));
                } else {
                    batch.fail(anchor, text(row, "why"));
                }
            }
            default -> throw AckerException.refused("unknown row %s", verb);
        }
    }

    private static String take(Outcomes outcomes) {
        List<Outcomes.Entry> entries = outcomes.read(ENTRIES);
        outcomes.take(entries);
        return outcomes(entries);
    }

    private static String outcomes(List<Outcomes.Entry> entries) {
        List<String> found = new ArrayList<>();
        for (Outcomes.Entry entry : entries) {
            for (Outcome each : entry.outcomes()) {
                found.add("[" + quoted(each.verdict()) + "," + quoted(each.reason()) + ",\"" + each.anchor() + "\","
                        + quoted(each.sourceId()) + "," + quoted(each.why()) + "," + each.ageMs() + ","
                        + quoted(each.cause()) + ",\""
                        + (each.cause().isEmpty() ? "" : String.format("%016x", each.residual())) + "\","
                        + each.idleMs() + "," + strings(each.edges()) + "]");
            }
        }
        return "{\"outcomes\":[" + String.join(",", found) + "]}";
    }

    private String track(Map<String, Object> asked) {
        int count = ((Long) asked.get("emit")).intValue();
        String edge = (String) asked.getOrDefault("edge", "");
        return emitted(acker.track(text(asked, "task"), text(asked, "source_id"), count, edge).messages());
    }

    private String trackBlock(Map<String, Object> asked) {
        long block = acker.trackBlock(text(asked, "task"), text(asked, "label"), numbers(asked, "deltas"));
        return "{\"block\":\"" + block + "\"}";
    }

    private String work(Map<String, Object> asked) {
        Processing work = producer.process(texts(asked, "inputs").toArray(new String[0]));
        List<String> emitted = new ArrayList<>();
        List<String> edges = texts(asked, "edges");
        List<?> keys = list(asked, "keys");
        for (Object each : list(asked, "emit")) {
            int[] places = ((List<?>) each).stream().mapToInt(place -> ((Long) place).intValue()).toArray();
            int i = emitted.size();
            Child child = new Child().withEdge(edges.isEmpty() ? "" : edges.get(i));
            if (!keys.isEmpty()) child = child.withKey((String) keys.get(i));
            emitted.add(work.emitFrom(child, places));
        }
        switch (text(asked, "end")) {
            case "ack" -> work.ack();
            case "fail" -> work.fail(text(asked, "why"));
            case "touch" -> work.touch();
            case "late" -> {
                work.ack();
                work.emitFrom(0);
            }
            default -> { }
        }
        if ((Boolean) asked.get("flush")) producer.flush();
        return emitted(emitted);
    }

    private String flush() {
        producer.flush();
        return "{}";
    }

    /** Runs a thread for each lane; the batches are made before the time is measured. */
    private String bench(Map<String, Object> asked) {
        int rows = ((Long) asked.get("rows")).intValue();
        int size = ((Long) asked.get("batch")).intValue();
        int trees = ((Long) asked.get("trees")).intValue();
        long[] anchors = new long[trees];
        long[] deltas = Ids.newTupleIds(trees);
        boolean blocks = Boolean.TRUE.equals(asked.get("blocks"));
        long tracking = System.nanoTime();
        for (int from = 0; from < trees; from += size) {
            int last = Math.min(trees, from + size);
            if (blocks) {
                long[] column = Arrays.copyOfRange(deltas, from, last);
                long block = acker.trackBlock("bench", "bench " + deltas[0] + " " + from, column);
                for (int i = from; i < last; i++) anchors[i] = Ids.blockAnchor(block, i - from);
                continue;
            }
            Batch batch = new Batch("bench");
            for (int i = from; i < last; i++) {
                anchors[i] = Ids.newAnchor();
                batch.track(anchors[i], "s", deltas[i]);
            }
            acker.apply(batch);
        }
        double tracked = (System.nanoTime() - tracking) / 1e9;
        long[] ids = Ids.newTupleIds(rows);
        AtomicInteger next = new AtomicInteger();
        AtomicReference<RuntimeException> failed = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        long begun = System.nanoTime();
        for (int i = 0; i < (Long) asked.get("lanes"); i++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int from; (from = next.getAndAdd(size)) < rows; ) {
                        Batch batch = new Batch();
                        for (int row = from; row < Math.min(rows, from + size); row++) {
                            batch.ack(anchors[row % trees], ids[row]);
                        }
                        acker.apply(batch);
                    }
                } catch (RuntimeException error) {
                    failed.set(error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            try {
                thread.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        if (failed.get() != null) throw failed.get();
        double seconds = (System.nanoTime() - begun) / 1e9;
        return "{\"rows\":" + rows + ",\"seconds\":" + seconds + ",\"tracking\":" + tracked + "}";
    }

    private void end() {
        if (producer != null) closeProducer();
        if (redis != null) redis.close();
    }

    private void closeProducer() {
        try {
            producer.close(Duration.ZERO);
        } catch (AckerException error) {
            System.err.println(error.getMessage()); // rows that were not flushed expire
        }
        producer = null;
    }

    private static String emitted(List<String> texts) {
        return "{\"emitted\":" + strings(texts) + "}";
    }

    private static String strings(List<String> texts) {
        return "[" + String.join(",", texts.stream().map(Driver::quoted).toList()) + "]";
    }

    private static String ids(List<Long> ids) {
        return "[" + String.join(",", ids.stream().map(id -> "\"" + id + "\"").toList()) + "]";
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') json.append('\\').append(each);
            else if (each < 32) json.append(String.format("\\u%04x", (int) each));
            else json.append(each);
        }
        return json.append('"').toString();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    private static String text(Map<String, Object> asked, String name) {
        return (String) asked.get(name);
    }

    private static List<?> list(Map<String, Object> asked, String name) {
        return (List<?>) asked.getOrDefault(name, List.of());
    }

    private static List<String> texts(Map<String, Object> asked, String name) {
        return list(asked, name).stream().map(String.class::cast).toList();
    }

    private static long[] numbers(Map<String, Object> asked, String name) {
        return list(asked, name).stream().mapToLong(each -> Ids.parse((String) each)).toArray();
    }

    private static Duration millis(Map<String, Object> asked, String name) {
        return Duration.ofMillis((Long) asked.get(name));
    }
}
