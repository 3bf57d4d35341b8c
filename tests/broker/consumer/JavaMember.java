// A consumer of Kafka's own client. Prints a line with "owned" and the numbers of its partitions
// after each change. Ends when its stdin ends.
//
//   java -cp "libs/*" JavaMember.java SERVERS TOPIC GROUP STRATEGY
//
// STRATEGY: class names with commas, or - for the client's default.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class JavaMember {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("heartbeat.interval.ms", "200");
        settings.put("session.timeout.ms", "6000");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (!args[3].equals("-")) {
            settings.put("partition.assignment.strategy", args[3]);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(args[1]));
            String before = null;
            Thread waiting = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (java.io.IOException ended) { }
            });
            waiting.setDaemon(true);
            waiting.start();
            while (waiting.isAlive()) {
                consumer.poll(Duration.ofMillis(50));
                String owned = consumer.assignment().stream()
                    .map(it -> String.valueOf(it.partition()))
                    .sorted().collect(Collectors.joining(" "));
                if (!owned.equals(before)) {
                    System.out.println("owned " + owned);
                    before = owned;
                }
            }
        }
    }
}
