// Reads messages with Kafka's own classes, and writes each of them again.
//
//   java -cp "kafka-clients-4.4.0.jar:slf4j-api-1.7.36.jar" WireRoundTrip.java
//
// A line of the input has the name of a message, a version, and the bytes in hexadecimal. A line of
// the output has the bytes that Java writes, or the error.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class WireRoundTrip {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            byte[] content = HexFormat.of().parseHex(words[2]);
            System.out.println(writtenAgain(words[0], Short.parseShort(words[1]), content));
        }
    }

    private static String writtenAgain(String name, short version, byte[] content) {
        try {
            String type = "org.apache.kafka.common.message." + javaName(name);
            Message message = (Message) Class.forName(type).getDeclaredConstructor().newInstance();
            ByteBuffer read = ByteBuffer.wrap(content);
            message.read(new ByteBufferAccessor(read), version);
            if (read.hasRemaining()) {
                return read.remaining() + " bytes are left";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            return HexFormat.of().formatHex(written.array(), 0, written.position());
        } catch (Exception | Error error) {
            return error.toString();
        }
    }

    private static String javaName(String name) {
        return name.startsWith("ConsumerProtocol") ? name : name + "Data";
    }
}
