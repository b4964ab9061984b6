// Command main SERVER: prints one line per outcome of Apache's Go client of the remoting protocol.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const patience = 90 * time.Second

var background = context.Background()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func say(name string, value any) {
	fmt.Printf("= %s: %v\n", name, value)
}

// outcomes decides the transactions: each by its body, and an open one when it is asked for.
type outcomes struct{ checked sync.Map }

func (each *outcomes) ExecuteLocalTransaction(half *primitive.Message) primitive.LocalTransactionState {
	switch string(half.Body) {
	case "committed":
		return primitive.CommitMessageState
	case "rolled back":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (each *outcomes) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	each.checked.Store(string(half.Body), true)
	return primitive.CommitMessageState
}

// received collects the bodies of a group until there are so many different ones.
func received(server []string, group, topic string, selector consumer.MessageSelector, count int,
	handle func(*primitive.MessageExt) consumer.ConsumeResult, options ...consumer.Option) []string {
	found := make(chan string, 1000)
	options = append(options, consumer.WithGroupName(group), consumer.WithNameServer(server), consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumeMessageBatchMaxSize(1))
	made, err := rmq.NewPushConsumer(options...)
	must(err)
	must(made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range messages {
			if result := handle(each); result != consumer.ConsumeSuccess {
				return result, nil
			}
			found <- string(each.Body)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
	bodies, seen, end := []string{}, map[string]bool{}, time.After(patience)
	for len(bodies) < count {
		select {
		case body := <-found:
			if !seen[body] {
				seen[body] = true
				bodies = append(bodies, body)
			}
		case <-end:
			panic(fmt.Sprintf("%s: only %v came", group, bodies))
		}
	}
	must(made.Shutdown())
	return bodies
}

func taken(*primitive.MessageExt) consumer.ConsumeResult { return consumer.ConsumeSuccess }

func sorted(texts []string) string {
	sort.Strings(texts)
	return strings.Join(texts, " ")
}

func main() {
	server := []string{os.Args[1]}
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	made, err := rmq.NewProducer(producer.WithNameServer(server), producer.WithGroupName("sellers"),
		producer.WithRetry(0), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	must(err)
	must(made.Start())
	for i := 0; i < 20; i++ {
		each := primitive.NewMessage("normal", []byte(fmt.Sprintf("m%02d", i)))
		each.WithTag(fmt.Sprintf("t%d", i%2)).WithKeys([]string{fmt.Sprintf("k%d", i)})
		each.WithProperty("n", fmt.Sprint(i))
		sent, err := made.SendSync(background, each)
		must(err)
		if sent.Status != primitive.SendOK {
			panic(sent.String())
		}
	}
	say("send", 20)
	batch := []*primitive.Message{}
	for _, body := range []string{"b0", "b1", "b2"} {
		batch = append(batch, primitive.NewMessage("batch", []byte(body)))
	}
	_, err = made.SendSync(background, batch...)
	must(err)
	for i := 0; i < 9; i++ {
		each := primitive.NewMessage("ordered", []byte(fmt.Sprint(i)))
		each.WithShardingKey("one")
		_, err = made.SendSync(background, each)
		must(err)
	}
	later := primitive.NewMessage("delayed", []byte("later"))
	later.WithDelayTimeLevel(1)
	_, err = made.SendSync(background, later)
	must(err)
	_, err = made.SendSync(background, primitive.NewMessage("no such topic", []byte("x")))
	say("a topic of a bad name", map[bool]string{true: "was refused", false: "was taken"}[err != nil])

	say("tags", sorted(received(server, "tags", "normal", consumer.MessageSelector{Type: consumer.TAG, Expression: "t1"}, 10, taken)))
	properties := consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > 16"}
	say("SQL filters", sorted(received(server, "properties", "normal", properties, 3, taken)))
	say("batch", sorted(received(server, "batches", "batch", all, 3, taken)))
	ordered := received(server, "ordering", "ordered", all, 9, taken, consumer.WithConsumerOrder(true))
	say("orderly", strings.Join(ordered, " "))
	everybody := received(server, "everybody", "batch", all, 3, taken, consumer.WithConsumerModel(consumer.BroadCasting))
	say("broadcast", sorted(everybody))
	say("delayed", sorted(received(server, "delaying", "delayed", all, 1, taken)))
	var attempts sync.Map
	again := received(server, "again", "batch", all, 3, func(each *primitive.MessageExt) consumer.ConsumeResult {
		if string(each.Body) == "b1" && each.ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater
		}
		attempts.Store(string(each.Body), each.ReconsumeTimes)
		return consumer.ConsumeSuccess
	})
	times, _ := attempts.Load("b1")
	say("retries", fmt.Sprintf("%s, b1 after %v retries", sorted(again), times))

	decided := &outcomes{}
	transactions, err := rmq.NewTransactionProducer(decided, producer.WithNameServer(server),
		producer.WithGroupName("deciders"), producer.WithInstanceName("deciders"))
	must(err)
	must(transactions.Start())
	for _, body := range []string{"committed", "rolled back", "left open"} {
		_, err = transactions.SendMessageInTransaction(background, primitive.NewMessage("half", []byte(body)))
		must(err)
	}
	got := received(server, "halves", "half", all, 2, taken)
	_, wasChecked := decided.checked.Load("left open")
	say("transactions", fmt.Sprintf("%s, checked %v", sorted(got), wasChecked))
	say("end", "reached")
	os.Exit(0)
}
