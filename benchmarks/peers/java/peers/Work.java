package peers;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** What the handler does: it counts and reads the clocks, or writes which record it was to the journal of a service. */
public final class Work {

    /** Bytes of a line of the journal, its end included: "partition:offset". */
    static final int LINE = 12;

    private final Job job;
    private final FileChannel journal;
    private final OperatingSystemMXBean machine =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final AtomicLong seen = new AtomicLong();
    private final CountDownLatch over = new CountDownLatch(1);
    private final long last;
    private volatile long beganNs;
    private volatile long cpuBeganNs;
    private volatile double wallSeconds;
    private volatile double cpuSeconds;

    Work(Job job) throws IOException {
        this.job = job;
        last = job.warm() + job.records();
        journal = job.isService()
                ? FileChannel.open(Path.of(job.journal()), StandardOpenOption.CREATE, StandardOpenOption.APPEND)
                : null;
    }

    Job job() {
        return job;
    }

    /** The record is handled. The clocks start after those that only warm the JVM up. */
    void did(byte[] value) {
        if (journal != null) {
            note(value);
            return;
        }
        long count = seen.incrementAndGet();
        if (count == job.warm()) {
            cpuBeganNs = machine.getProcessCpuTime();
            beganNs = System.nanoTime();
        } else if (count == last) {
            wallSeconds = (System.nanoTime() - beganNs) / 1e9;
            cpuSeconds = (machine.getProcessCpuTime() - cpuBeganNs) / 1e9;
            over.countDown();
        }
    }

    private void note(byte[] value) {
        byte[] line = new byte[LINE];
        System.arraycopy(value, 0, line, 0, LINE - 1);
        line[LINE - 1] = '\n';
        try {
            journal.write(ByteBuffer.wrap(line));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Returns when the last record is handled; in a service never. */
    void await() throws InterruptedException {
        over.await();
    }

    void print() throws IOException {
        System.out.printf(
                Locale.ROOT,
                "{\"records\": %d, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"peak_rss_mb\": %.1f}%n",
                job.records(), wallSeconds, cpuSeconds, peakMb());
    }

    private static double peakMb() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024 / 1e6;
            }
        }
        throw new IOException("/proc/self/status has no VmHWM");
    }
}
