import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of Kafka's own client that writes the journal that benchmarks/rebalances/diary.py describes. It takes the
 * same options as {@code python -m benchmarks.peers.contenders}, after the protocol: {@code classic} or
 * {@code consumer}.
 */
public final class RestartedMember implements ConsumerRebalanceListener {

    private static final long COMMIT_EVERY_NS = 1_000_000_000L;
    /** Where a value names its partition and its offset. */
    private static final int PLACE_BEGIN = 20;
    private static final int PLACE_END = 33;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;
    private final long waitMs;
    private final OutputStream journal;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    /** Records that wait for their handler. Guards {@code handling}, too. */
    private final Map<TopicPartition, Queue<ConsumerRecord<byte[], byte[]>>> queues = new HashMap<>();
    private final Map<TopicPartition, Future<Void>> handling = new HashMap<>();
    private final Map<TopicPartition, OffsetAndMetadata> positions = new ConcurrentHashMap<>();
    private volatile boolean stops;

    private RestartedMember(String protocol, Map<String, String> options) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("--bootstrap"));
        settings.put("group.id", options.get("--group"));
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "45000");
        }
        consumer = new KafkaConsumer<>(settings);
        topic = options.get("--topic");
        waitMs = Math.round(Double.parseDouble(options.get("--wait")) * 1000);
        journal = Files.newOutputStream(
                Path.of(options.get("--journal")), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 1; at + 1 < words.length; at += 2) {
            options.put(words[at], words[at + 1]);
        }
        endWithParent();
        RestartedMember member = new RestartedMember(words[0], options);
        Thread reading = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stops = true;
            try {
                reading.join();
            } catch (InterruptedException gone) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            member.read();
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** The other end of standard input closes when the process that has started this one is gone. */
    private static void endWithParent() {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException gone) {
                // As good as its end.
            }
            Runtime.getRuntime().halt(1);
        });
        watch.setDaemon(true);
        watch.start();
    }

    private void read() throws Exception {
        consumer.subscribe(List.of(topic), this);
        long commitAt = System.nanoTime() + COMMIT_EVERY_NS;
        while (!stops) {
            consumer.poll(Duration.ofMillis(200)).forEach(this::queue);
            if (System.nanoTime() >= commitAt) {
                commitAt = System.nanoTime() + COMMIT_EVERY_NS;
                consumer.commitAsync(Map.copyOf(positions), (offsets, error) -> {});
            }
        }
        // Revokes the partitions, which commits.
        consumer.close();
        threads.shutdown();
    }

    private void queue(ConsumerRecord<byte[], byte[]> record) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        synchronized (queues) {
            queues.computeIfAbsent(partition, one -> new ArrayDeque<>()).add(record);
            if (!handling.containsKey(partition)) {
                handling.put(partition, threads.submit(() -> handle(partition)));
            }
        }
    }

    /** Handles the records of a partition in their order, until none waits. */
    private Void handle(TopicPartition partition) throws InterruptedException {
        while (true) {
            ConsumerRecord<byte[], byte[]> record;
            synchronized (queues) {
                record = queues.get(partition).poll();
                if (record == null) {
                    handling.remove(partition);
                    return null;
                }
            }
            Thread.sleep(waitMs);
            write("handled", new String(
                    record.value(), PLACE_BEGIN, PLACE_END - PLACE_BEGIN, StandardCharsets.US_ASCII));
            positions.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
    }

    /** Lets running handlers end, and drops what waits. */
    private void finish(Collection<TopicPartition> partitions) {
        List<Future<Void>> running = new ArrayList<>();
        synchronized (queues) {
            for (TopicPartition partition : partitions) {
                queues.getOrDefault(partition, new ArrayDeque<>()).clear();
                if (handling.containsKey(partition)) {
                    running.add(handling.get(partition));
                }
            }
        }
        for (Future<Void> one : running) {
            try {
                one.get();
            } catch (InterruptedException | ExecutionException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        changed("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        finish(partitions);
        Map<TopicPartition, OffsetAndMetadata> handled = new HashMap<>(positions);
        handled.keySet().retainAll(partitions);
        try {
            consumer.commitSync(handled);
        } catch (CommitFailedException | RebalanceInProgressException notOurs) {
            // Another member has them by now, and handles again what is not committed.
        }
        positions.keySet().removeAll(partitions);
        changed("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        finish(partitions);
        positions.keySet().removeAll(partitions);
        changed("lost", partitions);
    }

    private void changed(String kind, Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            write(kind, partitions.stream()
                    .map(one -> String.valueOf(one.partition()))
                    .collect(Collectors.joining(",")));
        }
    }

    private void write(String kind, String what) {
        Instant now = Instant.now();
        long atNs = now.getEpochSecond() * 1_000_000_000L + now.getNano();
        byte[] line = (kind + " " + atNs + " " + what + "\n").getBytes(StandardCharsets.US_ASCII);
        try {
            // One call for each line: lines of several threads do not mix.
            journal.write(line);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
