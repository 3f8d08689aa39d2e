import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** A new group that consumes a backlog from its beginning: the first messages, then the measured rest. */
final class ConsumeWindow {
    private final Options options;
    private final String instance;
    private final AtomicLong got = new AtomicLong();
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long[] before;
    private volatile long[] after;
    private volatile long began;
    private volatile long ended;

    ConsumeWindow(Options options, String instance) {
        this.options = options;
        this.instance = instance;
    }

    String run() throws Exception {
        String pids = options.text("pids", "");
        long skip = options.number("skip", 0);
        long count = options.number("count", 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group", "load"));
        consumer.setInstanceName(instance);
        consumer.setNamesrvAddr(options.text("namesrv", null));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic", "Load"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = got.addAndGet(messages.size());
            long earlier = now - messages.size();
            try {
                if (earlier <= skip && skip < now) {
                    before = LoadGenerator.ticks(pids);
                    began = System.nanoTime();
                }
                if (earlier < count && count <= now) {
                    ended = System.nanoTime();
                    after = LoadGenerator.ticks(pids);
                    done.countDown();
                }
            } catch (java.io.IOException gone) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
        } catch (Exception late) {
            // 4.9.8 may throw after it has started and consumes; the count tells.
            System.err.println(late);
        }
        boolean finished = done.await(options.number("seconds", 300), TimeUnit.SECONDS);
        consumer.shutdown();
        if (!finished || after == null || before == null) {
            throw new IllegalStateException("consumed " + got.get() + " of " + count);
        }
        return String.format(
            Locale.ROOT,
            "{\"messages\": %d, \"micros\": %d, \"ticks\": %s}",
            count - skip,
            (ended - began) / 1000,
            LoadGenerator.difference(before, after));
    }
}
