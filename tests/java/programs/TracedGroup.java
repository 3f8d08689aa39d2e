import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A group of unmodified push consumers and a producer, all with message trace on, that counts its
 * own deliveries. Commands come as lines on standard input:
 *
 * <pre>
 * start MEMBER       a member joins                          prints: joined MEMBER
 * stop MEMBER        it leaves cleanly                       prints: left MEMBER
 * send FIRST COUNT   messages with these numbers are sent    prints: sent FIRST COUNT
 * batch FIRST COUNT  the same, as one batch                  prints: sent FIRST COUNT
 * commit NUMBER      one message in a transaction            prints: sent NUMBER 1
 * hold DISTINCT      further handlers wait once so many distinct messages were begun
 * go                 they go on
 * count              prints: counted DELIVERIES DISTINCT RETRIES DUPLICATES AFTER_SUCCESS RUNNING
 * </pre>
 *
 * Each delivery prints "got NUMBER BROKER QUEUE_ID QUEUE_OFFSET RECONSUME_TIMES MSG_ID". A delivery
 * is a retry if it is the first one of its message at its reconsume times and the one before
 * failed; any other that isn't the first is a duplicate, after success if a handler of the message
 * had returned success before it began. Options: -namesrv A -topic T -group G -handler MS -fail N
 * (numbers that N divides fail when they are handled first) -batch N -threads N -threshold N
 * -traceTopic T. Ends with standard input.
 */
public final class TracedGroup {
    private static final Map<String, Seen> SEEN = new HashMap<>();
    private static final List<DefaultMQProducer> TRANSACTIONS = new ArrayList<>();
    private static final Object GATE = new Object();
    private static int deliveries;
    private static int retries;
    private static int duplicates;
    private static int afterSuccess;
    private static int running;
    private static int holdAfter = Integer.MAX_VALUE;

    /** What became of one message. */
    private static final class Seen {
        final Set<Integer> attempts = new HashSet<>();
        final Set<Integer> failed = new HashSet<>();
        boolean succeeded;
        int deliveries;
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        Options options = new Options(args);
        String traceTopic = options.text("traceTopic", null);
        DefaultMQProducer producer = new DefaultMQProducer("traced-producer", true, traceTopic);
        producer.setNamesrvAddr(options.text("namesrv", null));
        producer.start();
        Map<String, DefaultMQPushConsumer> members = new LinkedHashMap<>();
        Options.say("ready");
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" ");
            switch (words[0]) {
                case "start":
                    members.put(words[1], member(words[1], options, traceTopic));
                    Options.say("joined %s", words[1]);
                    break;
                case "stop":
                    members.remove(words[1]).shutdown();
                    Options.say("left %s", words[1]);
                    break;
                case "send":
                    send(producer, options, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                    Options.say("sent %s %s", words[1], words[2]);
                    break;
                case "batch":
                    batch(producer, options, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                    Options.say("sent %s %s", words[1], words[2]);
                    break;
                case "commit":
                    commit(options, traceTopic, Integer.parseInt(words[1]));
                    Options.say("sent %s 1", words[1]);
                    break;
                case "hold":
                    hold(Integer.parseInt(words[1]));
                    break;
                case "go":
                    hold(Integer.MAX_VALUE);
                    break;
                case "count":
                    count();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        for (DefaultMQPushConsumer member : members.values()) {
            member.shutdown();
        }
        TRANSACTIONS.forEach(DefaultMQProducer::shutdown);
        producer.shutdown();
        System.exit(0);
    }

    private static DefaultMQPushConsumer member(String name, Options options, String traceTopic)
        throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(options.text("group", "traced-group"), true, traceTopic);
        consumer.setNamesrvAddr(options.text("namesrv", null));
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setPullThresholdForQueue(options.number("threshold", 10));
        consumer.setConsumeMessageBatchMaxSize(options.number("batch", 1));
        consumer.setConsumeThreadMin(options.number("threads", 2));
        consumer.setConsumeThreadMax(options.number("threads", 2));
        consumer.subscribe(options.text("topic", "JavaTopic"), "*");
        int handler = options.number("handler", 0);
        int fail = options.number("fail", 0);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean failing = false;
            for (MessageExt message : messages) {
                failing |= begin(message, fail);
                Options.say(
                    "got %s %s %d %d %d %s",
                    new String(message.getBody(), StandardCharsets.UTF_8),
                    context.getMessageQueue().getBrokerName(),
                    message.getQueueId(),
                    message.getQueueOffset(),
                    message.getReconsumeTimes(),
                    message.getMsgId());
            }
            try {
                pass();
                Thread.sleep(handler);
            } catch (InterruptedException interrupted) {
                failing = true;
            }
            for (MessageExt message : messages) {
                end(message, failing);
            }
            return failing
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Counts a delivery; returns whether it is to fail. */
    private static boolean begin(MessageExt message, int fail) {
        int number = Integer.parseInt(new String(message.getBody(), StandardCharsets.UTF_8));
        int attempt = message.getReconsumeTimes();
        synchronized (GATE) {
            Seen seen = SEEN.computeIfAbsent(message.getMsgId(), id -> new Seen());
            boolean first = seen.deliveries == 0;
            boolean newAttempt = seen.attempts.add(attempt);
            boolean retry = !first && attempt > 0 && newAttempt && seen.failed.contains(attempt - 1);
            if (retry) {
                retries++;
            } else if (!first) {
                duplicates++;
                afterSuccess += seen.succeeded ? 1 : 0;
            }
            seen.deliveries++;
            deliveries++;
            running++;
            return first && fail > 0 && number % fail == 0;
        }
    }

    private static void pass() throws InterruptedException {
        synchronized (GATE) {
            while (SEEN.size() > holdAfter) {
                GATE.wait();
            }
        }
    }

    private static void end(MessageExt message, boolean failed) {
        synchronized (GATE) {
            Seen seen = SEEN.get(message.getMsgId());
            if (failed) {
                seen.failed.add(message.getReconsumeTimes());
            } else {
                seen.succeeded = true;
            }
            running--;
        }
    }

    private static void hold(int distinct) {
        synchronized (GATE) {
            holdAfter = distinct;
            GATE.notifyAll();
        }
    }

    private static void count() {
        synchronized (GATE) {
            Options.say(
                "counted %d %d %d %d %d %d",
                deliveries, SEEN.size(), retries, duplicates, afterSuccess, running);
        }
    }

    private static void send(DefaultMQProducer producer, Options options, int first, int count)
        throws Exception {
        for (int number = first; number < first + count; number++) {
            producer.send(message(options, number));
        }
    }

    private static void batch(DefaultMQProducer producer, Options options, int first, int count)
        throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            messages.add(message(options, number));
        }
        producer.send(messages);
    }

    private static void commit(Options options, String traceTopic, int number) throws Exception {
        TransactionMQProducer producer =
            new TransactionMQProducer(null, "traced-transactions", null, true, traceTopic);
        producer.setNamesrvAddr(options.text("namesrv", null));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object none) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(message(options, number), null);
        TRANSACTIONS.add(producer); // kept until the end: its traces are sent later
    }

    private static Message message(Options options, int number) {
        byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        return new Message(options.text("topic", "JavaTopic"), "Tag", "key-" + number, body);
    }
}
