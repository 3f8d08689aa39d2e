import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Load for benchmarks, made by the unmodified client in one JVM that stays warm between windows.
 * Takes one command a line on standard input and answers each with one line of JSON:
 *
 * <pre>
 * send    -namesrv A -topic T [-topics N] -threads N -batch N -size BYTES
 *         -warm MS -millis MS [-bytes MOST] [-count N] [-pids P,P]
 * consume -namesrv A -topic T -group G -count N -skip N [-seconds MOST] [-pids P,P]
 * first   -namesrv A -topic T [-seconds MOST]
 * close
 * </pre>
 *
 * "ticks" in an answer are what each process of -pids spent between the edges of the measured
 * window, in clock ticks of /proc. Times are in microseconds, rates are left to the reader.
 */
public final class LoadGenerator {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static int instances;

    public static void main(String[] args) throws Exception {
        Options.say("{\"ready\": true}");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = answerTo(line.trim().split(" +"));
            } catch (Exception error) {
                answer = "{\"error\": " + quoted(String.valueOf(error)) + "}";
            }
            Options.say("%s", answer);
        }
        System.exit(0);
    }

    private static String answerTo(String[] words) throws Exception {
        String[] rest = new String[words.length - 1];
        System.arraycopy(words, 1, rest, 0, rest.length);
        Options options = new Options(rest);
        switch (words[0]) {
            case "send":
                return new SendWindow(producer(options), options).run();
            case "first":
                return SendWindow.first(producer(options), options);
            case "consume":
                return new ConsumeWindow(options, "consumer-" + instances++).run();
            case "close":
                PRODUCERS.values().forEach(DefaultMQProducer::shutdown);
                PRODUCERS.clear();
                return "{}";
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    /** One producer, and so one connection to a broker, for all threads, as applications do it. */
    private static DefaultMQProducer producer(Options options) throws Exception {
        String namesrv = options.text("namesrv", null);
        DefaultMQProducer producer = PRODUCERS.get(namesrv);
        if (producer == null) {
            producer = new DefaultMQProducer("load");
            // Without a name of its own it would share the client of another cluster.
            producer.setInstanceName("load-" + instances++);
            producer.setNamesrvAddr(namesrv);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setSendMsgTimeout(5000);
            // What is measured is the broker: bodies go as they are.
            producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            producer.start();
            PRODUCERS.put(namesrv, producer);
        }
        return producer;
    }

    /** User and system time of processes, in clock ticks. */
    static long[] ticks(String pids) throws java.io.IOException {
        String[] each = pids.isEmpty() ? new String[0] : pids.split(",");
        long[] found = new long[each.length];
        for (int at = 0; at < each.length; at++) {
            Path stat = Paths.get("/proc", each[at], "stat");
            String text = new String(Files.readAllBytes(stat));
            String[] fields = text.substring(text.lastIndexOf(')') + 2).split(" ");
            found[at] = Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
        }
        return found;
    }

    static String difference(long[] before, long[] after) {
        StringBuilder text = new StringBuilder("[");
        for (int at = 0; at < before.length; at++) {
            text.append(at == 0 ? "" : ", ").append(after[at] - before[at]);
        }
        return text.append("]").toString();
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean plain = each >= ' ' && each != '"' && each != '\\' && each < 127;
            out.append(plain ? String.valueOf(each) : String.format(Locale.ROOT, "\\u%04x", (int) each));
        }
        return out.append("\"").toString();
    }
}
