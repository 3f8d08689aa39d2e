import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes with the unmodified push client and prints one line per event:
 *
 * <pre>
 * started
 * got NUMBER BROKER QUEUE_ID QUEUE_OFFSET RECONSUME_TIMES MSG_ID
 * stopped
 * </pre>
 *
 * Options: -namesrv A -topic T -group G -sub EXPRESSION -handler MS -fail N (the first N deliveries
 * of each message ask for a retry) -poll MS -heartbeat MS -persist MS -threshold N -accessKey K
 * -secretKey S -trace TOPIC (message trace on) -namespace N -channel LOCAL|CLOUD. Stops cleanly
 * when standard input ends.
 */
public final class PushConsumer {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String trace = options.text("trace", null);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.text("group", "java-consumer"),
            options.signer(),
            new AllocateMessageQueueAveragely(),
            trace != null,
            trace);
        consumer.setNamesrvAddr(options.text("namesrv", null));
        consumer.setNamespace(options.text("namespace", null));
        consumer.setAccessChannel(AccessChannel.valueOf(options.text("channel", "LOCAL")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(options.number("poll", 1000));
        consumer.setHeartbeatBrokerInterval(options.number("heartbeat", 1000));
        consumer.setPersistConsumerOffsetInterval(options.number("persist", 1000));
        consumer.setPullThresholdForQueue(options.number("threshold", 1000));
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setMaxReconsumeTimes(options.number("maxReconsume", -1));
        // What was printed is handled and committed before the process ends.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        int handler = options.number("handler", 0);
        int fail = options.number("fail", 0);
        consumer.subscribe(options.text("topic", "JavaTopic"), options.text("sub", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean again = false;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8).trim();
                Options.say(
                    "got %s %s %d %d %d %s",
                    body,
                    context.getMessageQueue().getBrokerName(),
                    message.getQueueId(),
                    message.getQueueOffset(),
                    message.getReconsumeTimes(),
                    message.getMsgId());
                again |= message.getReconsumeTimes() < fail;
            }
            try {
                Thread.sleep(handler);
            } catch (InterruptedException interrupted) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return again
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.shutdown();
            Options.say("stopped");
        }));
        try {
            consumer.start();
        } catch (Exception error) {
            // 4.9.8 may throw after the client has started and consumes; the test sees "got" lines.
            Options.say("start-failed %s", String.valueOf(error).replace('\n', ' '));
        }
        Options.say("started");
        Options.endWithStandardInput();
        Thread.currentThread().join();
    }
}
