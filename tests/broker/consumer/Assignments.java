// Prints what Kafka's own assignors make of groups. Reads lines of words from stdin:
//
//   case ASSIGNOR
//   topic NAME RACKS...           one word for each partition: racks with commas, or -
//   member ID INSTANCE RACK GENERATION USERDATA TOPICS OWNED...
//   end
//
// INSTANCE, RACK and TOPICS may be -, USERDATA is in hex or -, TOPICS have commas, OWNED is
// topic:number. For each case it prints lines of member, topic and number, then "end".
//
//   subscription HEX
//   assignment HEX
//
// prints these bytes as Java writes what it has read in them, in the same version.
//
//   java -cp "kafka-clients-4.4.0.jar:slf4j-api-1.7.36.jar" Assignments.java

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignments {
    private static final Node LEADER = new Node(0, "host", 1);

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static String hex(ByteBuffer written) {
        byte[] content = new byte[written.remaining()];
        written.get(content);
        return HexFormat.of().formatHex(content) + "\n";
    }

    private static Subscription subscription(String[] words) {
        List<String> topics =
            words[6].equals("-") ? List.of() : Arrays.asList(words[6].split(","));
        ByteBuffer userData =
            words[5].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(words[5]));
        List<TopicPartition> owned = new ArrayList<>();
        for (String word : Arrays.asList(words).subList(7, words.length)) {
            String[] parts = word.split(":");
            owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        int generation = Integer.parseInt(words[4]);
        Subscription made =
            new Subscription(topics, userData, owned, generation, optional(words[3]));
        made.setGroupInstanceId(optional(words[2]));
        return made;
    }

    private static void addTopic(String[] words, List<PartitionInfo> partitions) {
        for (int number = 0; number < words.length - 2; number++) {
            List<Node> replicas = new ArrayList<>();
            // The leader, in no rack.
            replicas.add(LEADER);
            for (String rack : words[number + 2].split(",")) {
                if (!rack.equals("-")) {
                    replicas.add(new Node(replicas.size(), "host", 1, rack));
                }
            }
            Node[] nodes = replicas.toArray(new Node[0]);
            partitions.add(new PartitionInfo(words[1], number, nodes[0], nodes, nodes));
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        ConsumerPartitionAssignor assignor = null;
        List<PartitionInfo> partitions = null;
        Map<String, Subscription> members = null;
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("case")) {
                assignor = assignor(words[1]);
                partitions = new ArrayList<>();
                members = new HashMap<>();
            } else if (words[0].equals("topic")) {
                addTopic(words, partitions);
            } else if (words[0].equals("member")) {
                members.put(words[1], subscription(words));
            } else if (words[0].equals("subscription")) {
                ByteBuffer read = ByteBuffer.wrap(HexFormat.of().parseHex(words[1]));
                output.append(hex(ConsumerProtocol.serializeSubscription(
                    ConsumerProtocol.deserializeSubscription(read.duplicate()),
                    read.getShort(0))));
            } else if (words[0].equals("assignment")) {
                ByteBuffer read = ByteBuffer.wrap(HexFormat.of().parseHex(words[1]));
                output.append(hex(ConsumerProtocol.serializeAssignment(
                    ConsumerProtocol.deserializeAssignment(read.duplicate()),
                    read.getShort(0))));
            } else {
                Cluster cluster =
                    new Cluster("cluster", List.of(LEADER), partitions, Set.of(), Set.of());
                assignor.assign(cluster, new GroupSubscription(members))
                    .groupAssignment()
                    .forEach((member, given) -> given.partitions().forEach(it -> output
                        .append(member).append(' ').append(it.topic()).append(' ')
                        .append(it.partition()).append('\n')));
                output.append("end\n");
            }
        }
        System.out.print(output);
    }
}
