import com.sun.management.GarbageCollectionNotificationInfo;
import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryUsage;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.management.Notification;
import javax.management.NotificationEmitter;
import javax.management.NotificationListener;
import javax.management.openmbean.CompositeData;

/**
 * Announces long garbage collections to the sidecar. JDK 16 or later, no other library.
 *
 * <p>A JVM tells of a collection when it is over. So this listens to the small ones: when the old generation stays fuller
 * than a threshold after one of them, a long collection is near, and a pause is announced, twice as long as the longest
 * seen. When a collection emptied it, the pause is over.
 *
 * <pre>
 *   SidebeatGcHook.install("/run/sidebeat/hook.sock", 0.8);                      // in main
 *   java -javaagent:sidebeat-gc.jar=/run/sidebeat/hook.sock -jar service.jar     // or without touching the service
 *   java SidebeatGcHook.java /run/sidebeat/hook.sock                             // tries it once
 * </pre>
 */
public final class SidebeatGcHook implements NotificationListener {
    /** Announced at least for this long, and at most for 30 s. */
    private static final long LEAST_MS = 500;
    /** A sidecar that hangs is waited for this long: notices of later collections would pile up behind it. */
    private static final long ANSWER_MS = 200;

    private final UnixDomainSocketAddress socket;
    private final double threshold;
    private long longestMs;
    private boolean announced;
    private volatile String lastAnswer = "";

    private SidebeatGcHook(String path, double threshold) {
        this.socket = UnixDomainSocketAddress.of(path);
        this.threshold = threshold;
    }

    /** Listens to every collector of this JVM. {@code threshold}: share of the old generation, 0 to 1. */
    public static SidebeatGcHook install(String path, double threshold) {
        SidebeatGcHook hook = new SidebeatGcHook(path, threshold);
        for (GarbageCollectorMXBean gc : ManagementFactory.getGarbageCollectorMXBeans()) {
            if (gc instanceof NotificationEmitter emitter) {
                emitter.addNotificationListener(hook, null, null);
            }
        }
        return hook;
    }

    /** For {@code -javaagent:sidebeat-gc.jar=PATH}. */
    public static void premain(String path) {
        install(path, 0.8);
    }

    /** One line to the sidecar and its answer. */
    public String say(String line) throws IOException {
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX); Selector selector = Selector.open()) {
            channel.configureBlocking(false);
            if (!channel.connect(socket) && !channel.finishConnect()) {
                throw new IOException("the sidecar accepts nobody");
            }
            channel.write(ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8)));
            channel.shutdownOutput();
            channel.register(selector, SelectionKey.OP_READ);
            ByteBuffer answer = ByteBuffer.allocate(1024);
            long end = System.nanoTime() + ANSWER_MS * 1_000_000;
            // To the end: the sidecar closes after the last answer.
            for (int n = 0; n >= 0 && answer.hasRemaining(); n = channel.read(answer)) {
                long left = (end - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new IOException("no answer within " + ANSWER_MS + " ms");
                }
                selector.select(left);
                selector.selectedKeys().clear();
            }
            return new String(answer.array(), 0, answer.position(), StandardCharsets.UTF_8).trim();
        }
    }

    @Override
    public synchronized void handleNotification(Notification n, Object handback) {
        if (!n.getType().equals(GarbageCollectionNotificationInfo.GARBAGE_COLLECTION_NOTIFICATION)) {
            return;
        }
        GarbageCollectionNotificationInfo info = GarbageCollectionNotificationInfo.from((CompositeData) n.getUserData());
        longestMs = Math.max(longestMs, info.getGcInfo().getDuration());
        double full = oldGeneration(info.getGcInfo().getMemoryUsageAfterGc());
        try {
            if (full >= threshold) {
                long ms = Math.min(30_000, Math.max(LEAST_MS, 2 * longestMs));
                lastAnswer = say("pause " + ms + "ms gc near: old generation " + Math.round(full * 100) + "% full");
                announced = true;
            } else if (announced) {
                lastAnswer = say("resume");
                announced = false;
            }
        } catch (IOException e) {
            // A sidecar that is away must not hurt the service.
            lastAnswer = e.toString();
        }
    }

    private static double oldGeneration(Map<String, MemoryUsage> pools) {
        double full = 0;
        for (Map.Entry<String, MemoryUsage> pool : pools.entrySet()) {
            boolean old = pool.getKey().contains("Old") || pool.getKey().contains("Tenured");
            if (old && pool.getValue().getMax() > 0) {
                full = (double) pool.getValue().getUsed() / pool.getValue().getMax();
            }
        }
        return full;
    }

    /** Fills the heap until a pause was announced; prints the sidecar's answer. */
    public static void main(String[] args) throws Exception {
        SidebeatGcHook hook = install(args[0], 0.6);
        List<byte[]> kept = new ArrayList<>();
        Runtime heap = Runtime.getRuntime();
        long end = System.nanoTime() + 30_000_000_000L;
        while (hook.lastAnswer.isEmpty() && System.nanoTime() < end) {
            byte[] some = new byte[64 * 1024];
            if (heap.totalMemory() - heap.freeMemory() < heap.maxMemory() * 3 / 4) {
                kept.add(some);
            }
        }
        System.out.println(hook.lastAnswer + " (with " + kept.size() * 64 + " KiB kept)");
        System.exit(hook.lastAnswer.startsWith("ok announced") ? 0 : 1);
    }
}
