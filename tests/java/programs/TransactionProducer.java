import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends numbered transactional messages with the unmodified client and prints one line per event:
 *
 * <pre>
 * started
 * sent NUMBER STATUS BROKER QUEUE_ID QUEUE_OFFSET
 * checked NUMBER
 * done
 * </pre>
 *
 * NUMBER modulo 3 decides: 0 is committed at once, 1 rolled back at once, 2 left open and committed
 * when the broker asks. Options: -namesrv A -topic T -group G -first N -count N. Stays until
 * standard input ends, to be asked.
 */
public final class TransactionProducer {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        TransactionMQProducer producer =
            new TransactionMQProducer(options.text("group", "java-transactions"));
        producer.setNamesrvAddr(options.text("namesrv", null));
        producer.setPollNameServerInterval(options.number("poll", 1000));
        producer.setHeartbeatBrokerInterval(options.number("heartbeat", 1000));
        producer.setTransactionListener(new Listener());
        producer.start();
        Options.say("started");
        String topic = options.text("topic", "JavaTopic");
        int first = options.number("first", 0);
        int end = first + options.number("count", 10);
        Options.endWithStandardInput();
        for (int number = first; number < end; number++) {
            byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
            TransactionSendResult result =
                producer.sendMessageInTransaction(new Message(topic, body), number);
            Options.say(
                "sent %d %s %s %d %d",
                number,
                result.getSendStatus(),
                result.getMessageQueue().getBrokerName(),
                result.getMessageQueue().getQueueId(),
                result.getQueueOffset());
        }
        Options.say("done");
        Thread.currentThread().join();
    }

    private static final class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            switch ((Integer) number % 3) {
                case 0:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 1:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Options.say("checked %s", new String(message.getBody(), StandardCharsets.UTF_8));
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
