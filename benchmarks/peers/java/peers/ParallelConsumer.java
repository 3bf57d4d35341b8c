package peers;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Confluent's parallel-consumer, unordered, with commits once a second here (5 by default). */
final class ParallelConsumer implements Peer {

    private static final int AT_ONCE = 1_000;
    private static final int AT_ONCE_WITHOUT_WAIT = 100; // as fast as it got; its default is 16

    private final ParallelStreamProcessor<byte[], byte[]> processor;

    ParallelConsumer(Work work, String mode) {
        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, work.job().bootstrap());
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, work.job().group());
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        properties.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        properties.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        if (work.job().isService()) {
            properties.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, Job.SESSION_MS);
            properties.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "2000");
        }
        boolean waits = work.job().waitSeconds() > 0;
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .consumer(new KafkaConsumer<>(properties))
                .ordering(ProcessingOrder.UNORDERED)
                .commitInterval(Duration.ofSeconds(1))
                .maxConcurrency(waits ? AT_ONCE : AT_ONCE_WITHOUT_WAIT)
                .build();
        processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(work.job().topic()));
        processor.poll(context -> {
            byte[] value = context.value();
            if (waits) {
                sleep(work.job().waitMs(value));
            }
            work.did(value);
        });
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("stopped while it waited", stopped);
        }
    }

    @Override
    public void close() {
        processor.closeDrainFirst();
    }
}
