package peers;

import java.util.HashMap;
import java.util.Map;

/** What a contender is asked to do: the options of its command line, as {@code benchmarks.peers.contenders} has them. */
public record Job(
        String bootstrap, String topic, String group, long records, long warm, double waitSeconds, String journal) {

    /** Sessions of all contenders whose members are killed. */
    public static final String SESSION_MS = "6000";

    static Job of(String[] words) {
        Map<String, String> given = new HashMap<>();
        for (int at = 0; at + 1 < words.length; at += 2) {
            given.put(words[at], words[at + 1]);
        }
        return new Job(
                given.get("--bootstrap"),
                given.get("--topic"),
                given.get("--group"),
                Long.parseLong(given.getOrDefault("--records", "0")),
                Long.parseLong(given.getOrDefault("--warm", "0")),
                Double.parseDouble(given.getOrDefault("--wait", "0")),
                given.getOrDefault("--journal", ""));
    }

    boolean isService() {
        return !journal.isEmpty();
    }

    /** How long the handler waits for this record: in a service up to twice the wait, by the record's number. */
    long waitMs(byte[] value) {
        if (!isService()) {
            return Math.round(waitSeconds * 1e3);
        }
        int number = Integer.parseInt(new String(value, 2, Work.LINE - 3));
        return Math.round(waitSeconds * 2e3 * (number * 7919L % 100) / 100);
    }
}
