// A member of a consumer group on Apache's Go client, which prints one line per event:
//
//	started
//	got NUMBER BROKER QUEUE_ID QUEUE_OFFSET RECONSUME_TIMES MSG_ID
//	stopped
//
// A delivery is printed before its handler. Options: -namesrv A -topic T -group G -handler MS
// -threshold N. When standard input ends or at SIGTERM it stops cleanly: it pulls nothing more,
// handles what it has, waits quietMilliseconds and shuts down.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const quietMilliseconds = 3000

var (
	lines     sync.Mutex
	unhandled atomic.Int64
	lastAt    atomic.Int64
)

func say(format string, parts ...interface{}) {
	lines.Lock()
	defer lines.Unlock()
	fmt.Printf(format+"\n", parts...)
}

func main() {
	namesrv := flag.String("namesrv", "", "name servers, HOST:PORT;HOST:PORT")
	topic := flag.String("topic", "JavaTopic", "topic to consume")
	group := flag.String("group", "go-consumer", "consumer group")
	handler := flag.Int("handler", 0, "milliseconds that a handler takes")
	threshold := flag.Int64("threshold", 1024, "messages of a queue that are pulled ahead")
	flag.Parse()
	rlog.SetLogLevel("warn")

	// Members of one process or host differ by their instance name.
	member, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(*group),
		consumer.WithInstance(fmt.Sprintf("%d-%s", os.Getpid(), *group)),
		consumer.WithNameServer(strings.Split(*namesrv, ";")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithPullThresholdForQueue(*threshold),
		consumer.WithConsumeConcurrentlyMaxSpan(int(*threshold)),
	)
	if err == nil {
		err = member.Subscribe(*topic, consumer.MessageSelector{}, handle(*handler))
	}
	if err == nil {
		err = member.Start()
	}
	if err != nil {
		say("start-failed %s", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	say("started")
	untilStopped()
	member.Suspend()
	for unhandled.Load() > 0 || time.Now().UnixMilli()-lastAt.Load() < quietMilliseconds {
		time.Sleep(50 * time.Millisecond)
	}
	if err := member.Shutdown(); err != nil {
		say("stop-failed %s", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	say("stopped")
}

func handle(milliseconds int) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		unhandled.Add(1)
		for _, message := range messages {
			number := strings.TrimSpace(string(message.Body))
			say("got %s %s %d %d %d %s %d", number, message.Queue.BrokerName, message.Queue.QueueId,
				message.QueueOffset, message.ReconsumeTimes, message.MsgId, time.Now().UnixMilli())
		}
		time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		lastAt.Store(time.Now().UnixMilli())
		unhandled.Add(-1)
		return consumer.ConsumeSuccess, nil
	}
}

func untilStopped() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended <- syscall.SIGTERM
	}()
	<-ended
}
