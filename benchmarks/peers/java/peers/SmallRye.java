package peers;

import io.smallrye.config.SmallRyeConfigBuilder;
import io.smallrye.mutiny.Multi;
import io.smallrye.mutiny.Uni;
import jakarta.enterprise.context.ApplicationScoped;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.eclipse.microprofile.config.spi.ConfigProviderResolver;
import org.eclipse.microprofile.reactive.messaging.Acknowledgment;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.eclipse.microprofile.reactive.messaging.Outgoing;
import org.jboss.weld.environment.se.Weld;
import org.jboss.weld.environment.se.WeldContainer;

/** SmallRye Reactive Messaging with its Kafka connector, with throttled commits, once a second here (5 by default). */
final class SmallRye implements Peer {

    private static final int AT_ONCE = 1_000;

    private static Work work; // for the beans, which CDI makes

    private final WeldContainer container;

    SmallRye(Work work, String mode) {
        SmallRye.work = work;
        // The channel has the mode's name: the other handler's has no connector, and gets nothing.
        SmallRyeConfigBuilder config = new SmallRyeConfigBuilder().addDefaultInterceptors();
        properties(work.job()).forEach((name, value) ->
                config.withDefaultValue("mp.messaging.incoming." + mode + "." + name, value));
        ConfigProviderResolver.instance().registerConfig(config.build(), Thread.currentThread().getContextClassLoader());
        container = new Weld().skipShutdownHook().initialize();
    }

    private static Map<String, String> properties(Job job) {
        Map<String, String> found = new HashMap<>();
        found.put("connector", "smallrye-kafka");
        found.put("bootstrap.servers", job.bootstrap());
        found.put("topic", job.topic());
        found.put("group.id", job.group());
        found.put("auto.offset.reset", "earliest");
        found.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        found.put("commit-strategy", "throttled");
        found.put("auto.commit.interval.ms", "1000");
        found.put("tracing-enabled", "false"); // as without an OpenTelemetry extension in Quarkus
        if (job.isService()) {
            found.put("session.timeout.ms", Job.SESSION_MS);
            found.put("heartbeat.interval.ms", "2000");
        }
        return found;
    }

    @Override
    public void close() {
        container.shutdown();
    }

    /** A record at a time. */
    @ApplicationScoped
    public static class Sequential {

        @Incoming("sequential")
        public void handle(byte[] value) {
            work.did(value);
        }
    }

    /** So many at once, in any order; each is acked when it is handled. */
    @ApplicationScoped
    public static class Merged {

        @Incoming("merge")
        @Outgoing("handled")
        @Acknowledgment(Acknowledgment.Strategy.MANUAL)
        public Multi<Message<byte[]>> handle(Multi<Message<byte[]>> messages) {
            return messages.onItem().transformToUni(this::handled).merge(AT_ONCE);
        }

        private Uni<Message<byte[]>> handled(Message<byte[]> message) {
            byte[] value = message.getPayload();
            return Uni.createFrom().voidItem()
                    .onItem().delayIt().by(Duration.ofMillis(Math.max(1, work.job().waitMs(value))))
                    .invoke(() -> work.did(value))
                    .chain(() -> Uni.createFrom().completionStage(message.ack()))
                    .replaceWith(message);
        }

        @Incoming("handled")
        @Acknowledgment(Acknowledgment.Strategy.NONE)
        public void ignore(byte[] value) {}
    }
}
