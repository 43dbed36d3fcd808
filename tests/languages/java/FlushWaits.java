import acker.redis.*;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Gives up a batch, and prints whether flush or close returned before onGivenUp did, or after it threw. */
public class FlushWaits {
    /** Throws a checked exception that no signature declares, as Kotlin and Scala do. */
    @SuppressWarnings("unchecked")
    private static <E extends Throwable> void sneak(Throwable thrown) throws E {
        throw (E) thrown;
    }

    public static void main(String[] args) throws Exception {
        boolean closes = args[2].contains("close"), throwing = args[2].contains("throws");
        CountDownLatch ended = new CountDownLatch(1);
        Resp redis = Resp.connect(args[0]);
        Producer producer = new Producer(new Acker(redis, args[1], Duration.ZERO),
                new Producer.Settings().withLinger(Duration.ofMinutes(1)).withOnGivenUp((error, batch) -> {
                    if (throwing) FlushWaits.<RuntimeException>sneak(new IOException("undeclared"));
                    try {
                        boolean late = ended.await(200, TimeUnit.MILLISECONDS);
                        System.out.println(late ? "too late" : "given up " + batch.rows().size());
                    } catch (InterruptedException interrupted) {
                        throw new IllegalStateException(interrupted);
                    }
                }));
        producer.process("7:40").touch();
        redis.close(); // so that the batch cannot be sent
        try {
            if (closes) producer.close();
            else producer.flush();
        } catch (AckerException error) {
            System.out.println(error.code());
        }
        ended.countDown();
    }
}
