import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Threads that send synchronously: a warm-up, then a measured window. */
final class SendWindow {
    private static final int WARM = 0;
    private static final int MEASURED = 1;
    private static final int OVER = 2;

    private final DefaultMQProducer producer;
    private final Options options;
    private final String topic;
    private final int topics;
    private final int batch;
    private final byte[] body;
    private final LongAdder accepted = new LongAdder();
    private final LongAdder errors = new LongAdder();
    private final LongAdder unsure = new LongAdder();
    private final AtomicReference<String> firstError = new AtomicReference<>("");
    private volatile int phase = WARM;

    SendWindow(DefaultMQProducer producer, Options options) {
        this.producer = producer;
        this.options = options;
        topic = options.text("topic", "Load");
        topics = options.number("topics", 0);
        batch = options.number("batch", 1);
        body = new byte[options.number("size", 1024)];
        new Random(7).nextBytes(body);
    }

    String run() throws Exception {
        String pids = options.text("pids", "");
        long bytes = Long.parseLong(options.text("bytes", String.valueOf(Long.MAX_VALUE)));
        long count = Math.min(options.number("count", Integer.MAX_VALUE), bytes / body.length);
        List<Sender> senders = new ArrayList<>();
        for (int number = 0; number < options.number("threads", 1); number++) {
            Sender sender = new Sender(number);
            senders.add(sender);
            sender.start();
        }
        waitFor(options.number("warm", 0), count / 4);
        long[] before = LoadGenerator.ticks(pids);
        long acceptedBefore = accepted.sum();
        long began = System.nanoTime();
        phase = MEASURED;
        waitFor(options.number("millis", 1000), acceptedBefore + count);
        phase = OVER;
        long ended = System.nanoTime();
        long messages = accepted.sum() - acceptedBefore;
        long[] after = LoadGenerator.ticks(pids);
        for (Sender sender : senders) {
            sender.join();
        }
        return String.format(
            Locale.ROOT,
            "{\"messages\": %d, \"micros\": %d, \"ticks\": %s, \"errors\": %d, \"unsure\": %d, "
                + "\"first_error\": %s, %s}",
            messages,
            (ended - began) / 1000,
            LoadGenerator.difference(before, after),
            errors.sum(),
            unsure.sum(),
            LoadGenerator.quoted(firstError.get()),
            percentiles(senders));
    }

    /** Returns when the time is over or the sum of accepted messages is reached. */
    private void waitFor(int millis, long most) throws InterruptedException {
        long deadline = System.nanoTime() + millis * 1_000_000L;
        while (System.nanoTime() < deadline && accepted.sum() < most) {
            Thread.sleep(1);
        }
    }

    private static String percentiles(List<Sender> senders) {
        int size = senders.stream().mapToInt(each -> each.size).sum();
        int[] all = new int[size];
        int at = 0;
        for (Sender sender : senders) {
            System.arraycopy(sender.micros, 0, all, at, sender.size);
            at += sender.size;
        }
        Arrays.sort(all);
        return String.format(
            Locale.ROOT,
            "\"p50\": %d, \"p99\": %d, \"p999\": %d",
            share(all, 0.5),
            share(all, 0.99),
            share(all, 0.999));
    }

    private static int share(int[] ordered, double share) {
        return ordered.length == 0
            ? 0
            : ordered[Math.min((int) (ordered.length * share), ordered.length - 1)];
    }

    /** One thread; keeps how long each send of the measured window took. */
    private final class Sender extends Thread {
        int[] micros = new int[4096];
        int size;
        private int round;

        Sender(int number) {
            super("sender-" + number);
            round = number;
        }

        @Override
        public void run() {
            while (phase != OVER) {
                boolean measured = phase == MEASURED;
                long began = System.nanoTime();
                try {
                    SendResult result = batch > 1 ? producer.send(messages()) : producer.send(message());
                    accepted.add(batch);
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        unsure.add(batch);
                    }
                } catch (Exception error) {
                    errors.increment();
                    firstError.compareAndSet("", String.valueOf(error));
                    LockSupport.parkNanos(1_000_000);
                    continue;
                }
                if (measured && phase == MEASURED) {
                    keep((int) ((System.nanoTime() - began) / 1000));
                }
            }
        }

        private Message message() {
            return new Message(nextTopic(), body);
        }

        private List<Message> messages() {
            String name = nextTopic();
            List<Message> messages = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                messages.add(new Message(name, body));
            }
            return messages;
        }

        private String nextTopic() {
            return topics == 0 ? topic : topic + (round++ & Integer.MAX_VALUE) * 31L % topics;
        }

        private void keep(int taken) {
            if (size == micros.length) {
                micros = Arrays.copyOf(micros, 2 * size);
            }
            micros[size++] = taken;
        }
    }

    /** Tries until a send is accepted; answers the wall clock of that moment in milliseconds. */
    static String first(DefaultMQProducer producer, Options options) throws Exception {
        String topic = options.text("topic", "Load");
        long deadline = System.currentTimeMillis() + 1000L * options.number("seconds", 60);
        String last = "";
        int tries = 0;
        while (System.currentTimeMillis() < deadline) {
            tries++;
            try {
                SendResult result = producer.send(new Message(topic, new byte[1024]), 500);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return String.format(
                        Locale.ROOT,
                        "{\"accepted_ms\": %d, \"tries\": %d}",
                        System.currentTimeMillis(),
                        tries);
                }
                last = result.getSendStatus().name();
            } catch (Exception error) {
                last = String.valueOf(error);
            }
            Thread.sleep(2);
        }
        throw new IllegalStateException("not accepted: " + last);
    }
}
