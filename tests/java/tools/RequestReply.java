import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Asks a question over a topic and answers it itself, with the unmodified client's request and
 * reply: prints "answer TEXT". Arguments: name server, topic, how long to wait in ms.
 */
public final class RequestReply {
    public static void main(String[] args) {
        try {
            System.out.println("answer " + ask(args));
        } catch (Exception failed) {
            failed.printStackTrace();
        }
        System.out.flush();
        System.exit(0);  // threads of the clients would go on
    }

    private static String ask(String[] args) throws Exception {
        DefaultMQProducer answering = new DefaultMQProducer("answering-producer");
        answering.setNamesrvAddr(args[0]);
        answering.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answering-consumer");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (Message question : messages) {
                try {
                    byte[] text = ("re: " + text(question)).getBytes(StandardCharsets.UTF_8);
                    answering.send(MessageUtil.createReplyMessage(question, text), 30_000);
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer asking = new DefaultMQProducer("asking-producer");
        asking.setNamesrvAddr(args[0]);
        asking.start();
        byte[] question = "how late is it".getBytes(StandardCharsets.UTF_8);
        return text(asking.request(new Message(args[1], question), Long.parseLong(args[2])));
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
