import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends numbered messages with the unmodified client and prints one line per event:
 *
 * <pre>
 * started
 * sent NUMBER STATUS BROKER QUEUE_ID QUEUE_OFFSET OFFSET_MSG_ID
 * failed NUMBER EXCEPTION
 * done
 * </pre>
 *
 * Options: -namesrv A -topic T -group G -first N -count N -interval MS -size BYTES -batch N
 * -retries N -timeout MS -delayLevel N -tags T -accessKey K -secretKey S -namespace N. Ends after
 * count messages, or when standard input ends.
 */
public final class Producer {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQProducer producer =
            new DefaultMQProducer(options.text("group", "java-producer"), options.signer());
        producer.setNamesrvAddr(options.text("namesrv", null));
        producer.setNamespace(options.text("namespace", null));
        producer.setPollNameServerInterval(options.number("poll", 1000));
        producer.setHeartbeatBrokerInterval(options.number("heartbeat", 1000));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 2));
        producer.setSendMsgTimeout(options.number("timeout", 3000));
        producer.start();
        Options.say("started");
        String topic = options.text("topic", "JavaTopic");
        int size = options.number("size", 0);
        int batch = options.number("batch", 1);
        int first = options.number("first", 0);
        int end = first + options.number("count", Integer.MAX_VALUE);
        Options.endWithStandardInput();
        for (int number = first; number < end; number += batch) {
            List<Message> messages = new ArrayList<>();
            for (int each = number; each < Math.min(end, number + batch); each++) {
                messages.add(message(topic, options, each, size));
            }
            try {
                SendResult result =
                    batch > 1 ? producer.send(messages) : producer.send(messages.get(0));
                Options.say(
                    "sent %d %s %s %d %d %s",
                    number,
                    result.getSendStatus(),
                    result.getMessageQueue().getBrokerName(),
                    result.getMessageQueue().getQueueId(),
                    result.getQueueOffset(),
                    result.getOffsetMsgId());
            } catch (Exception error) {
                String text = (error + ", " + error.getCause()).replace('\n', ' ');
                Options.say("failed %d %s", number, text);
            }
            Thread.sleep(options.number("interval", 0));
        }
        producer.shutdown();
        Options.say("done");
        System.exit(0);
    }

    private static Message message(String topic, Options options, int number, int size) {
        byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        if (size > body.length) {
            int digits = body.length;
            body = Arrays.copyOf(body, size);
            Arrays.fill(body, digits, size, (byte) ' ');
        }
        Message message = new Message(topic, options.text("tags", null), "key-" + number, body);
        int delayLevel = options.number("delayLevel", 0);
        if (delayLevel > 0) {
            message.setDelayTimeLevel(delayLevel);
        }
        return message;
    }
}
