// A broker's plugin that writes the metrics which clients push to a file, in lines:
//
//   push CLIENT_ID INSTANCE_ID IS_TERMINATING
//   label NAME VALUE
//   gauge NAME VALUE ATTRIBUTE=VALUE ...
//   sum NAME VALUE ATTRIBUTE=VALUE ...         (delta: what was added since the last push)
//   total NAME VALUE ATTRIBUTE=VALUE ...       (cumulative)
//   end
//
// The words of a line are separated by tabs. The file is the broker's property received.metrics.file.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.AggregationTemporality;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ScopeMetrics;

public class ReceivedMetrics implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(String.valueOf(configs.get("received.metrics.file")));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(
            AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        try {
            Files.writeString(
                    file,
                    text(context, payload),
                    StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String text(AuthorizableRequestContext context, ClientTelemetryPayload payload)
            throws IOException {
        StringBuilder lines = new StringBuilder();
        line(lines, "push", context.clientId(), payload.clientInstanceId(), payload.isTerminating());
        for (ResourceMetrics resource : MetricsData.parseFrom(payload.data()).getResourceMetricsList()) {
            for (KeyValue label : resource.getResource().getAttributesList()) {
                line(lines, "label", label.getKey(), label.getValue().getStringValue());
            }
            for (ScopeMetrics scope : resource.getScopeMetricsList()) {
                scope.getMetricsList().forEach(metric -> metric(lines, metric));
            }
        }
        line(lines, "end");
        return lines.toString();
    }

    private static void metric(StringBuilder lines, Metric metric) {
        String kind = "gauge";
        List<NumberDataPoint> points = metric.getGauge().getDataPointsList();
        if (metric.hasSum()) {
            boolean isDelta =
                    metric.getSum().getAggregationTemporality()
                            == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA;
            kind = isDelta ? "sum" : "total";
            points = metric.getSum().getDataPointsList();
        }
        for (NumberDataPoint point : points) {
            double value = point.hasAsInt() ? point.getAsInt() : point.getAsDouble();
            String attributes =
                    point.getAttributesList().stream()
                            .map(it -> it.getKey() + "=" + it.getValue().getStringValue())
                            .collect(Collectors.joining("\t"));
            line(lines, kind, metric.getName(), value, attributes);
        }
    }

    private static void line(StringBuilder lines, Object... words) {
        for (int i = 0; i < words.length; i++) {
            lines.append(i == 0 ? "" : "\t").append(words[i]);
        }
        lines.append("\n");
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
