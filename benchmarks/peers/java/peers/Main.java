package peers;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.logging.Level;
import java.util.logging.LogManager;

/** Runs one contender here, as {@code python -m benchmarks.peers.contenders} does; the last line is its result. */
public final class Main {

    private Main() {}

    public static void main(String[] words) {
        try {
            run(words);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // a peer's own threads would keep the process
        }
    }

    private static void run(String[] words) throws Exception {
        LogManager.getLogManager().getLogger("").setLevel(Level.WARNING);
        endWithParent();
        String[] options = new String[words.length - 1];
        System.arraycopy(words, 1, options, 0, options.length);
        Work work = new Work(Job.of(options));
        Peer peer = started(words[0], work);
        AtomicBoolean closed = new AtomicBoolean();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (closed.compareAndSet(false, true)) {
                peer.close();
            }
        }));
        work.await();
        if (closed.compareAndSet(false, true)) {
            peer.close();
        }
        work.print();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Peer started(String name, Work work) throws Exception {
        Class<?> found = Class.forName("peers." + name.substring(0, name.indexOf(':')));
        String mode = name.substring(name.indexOf(':') + 1);
        return (Peer) found.getDeclaredConstructor(Work.class, String.class).newInstance(work, mode);
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
}
