// Prints Kafka's error codes, one a line: number, name, whether its exception is retriable.
//
//   java -cp "kafka-clients-4.4.0.jar:slf4j-api-1.7.36.jar" ErrorCodes.java

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class ErrorCodes {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + " " + error.name() + " " + isRetriable);
        }
    }
}
