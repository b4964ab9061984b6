// Command main ENDPOINT: prints one line per outcome, the same for every broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	patience  = 90 * time.Second
	invisible = 20 * time.Second
)

var background = context.Background()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func say(name string, value any) {
	fmt.Printf("= %s: %v\n", name, value)
}

func config(endpoint, group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func message(topic, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func send(producer rmq.Producer, each *rmq.Message) {
	_, err := producer.Send(background, each)
	must(err)
}

func consumer(endpoint, group, topic string, expression *rmq.FilterExpression) rmq.SimpleConsumer {
	made, err := rmq.NewSimpleConsumer(config(endpoint, group), rmq.WithAwaitDuration(3*time.Second),
		rmq.WithSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: expression}))
	must(err)
	must(made.Start())
	return made
}

// receive returns at least one message. A proxy may refuse calls until it has the settings of a client.
func receive(from rmq.SimpleConsumer, limit int32) []*rmq.MessageView {
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		got, err := from.Receive(background, limit, invisible)
		var refused *rmq.ErrRpcStatus
		if last = err; errors.As(err, &refused) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		must(err)
		if len(got) > 0 {
			return got
		}
	}
	panic(fmt.Sprintf("no message came: %v", last))
}

// bodies receives and acknowledges messages until there are so many different ones.
func bodies(from rmq.SimpleConsumer, count int, limit int32) []string {
	found, seen := []string{}, map[string]bool{}
	for len(found) < count {
		for _, each := range receive(from, limit) {
			if body := string(each.GetBody()); !seen[body] {
				seen[body] = true
				found = append(found, body)
			}
			must(from.Ack(background, each))
		}
	}
	return found
}

func sorted(texts []string) string {
	sort.Strings(texts)
	return strings.Join(texts, " ")
}

func main() {
	endpoint := os.Args[1]
	var checks atomic.Int32
	producer, err := rmq.NewProducer(config(endpoint, ""), rmq.WithTopics("normal", "ordered", "delayed", "half"),
		rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: func(half *rmq.MessageView) rmq.TransactionResolution {
			checks.Add(1)
			// RocketMQ's broker also asks about one that has just been ended.
			if string(half.GetBody()) == "rolled back" {
				return rmq.ROLLBACK
			}
			return rmq.COMMIT
		}}))
	must(err)
	must(producer.Start())
	filtered(endpoint, producer)
	changed(endpoint, producer)
	ordered(endpoint, producer)
	delayed(endpoint, producer)
	transactions(endpoint, producer, &checks)
	_, err = producer.Send(background, message("no such topic", "x"))
	say("a topic of a bad name", map[bool]string{true: "was refused", false: "was taken"}[err != nil])
	say("end", "reached")
	os.Exit(0) // a client that is stopped waits for its streams
}

func filtered(endpoint string, producer rmq.Producer) {
	for i := 0; i < 20; i++ {
		each := message("normal", fmt.Sprintf("m%02d", i))
		each.SetTag(fmt.Sprintf("t%d", i%2))
		each.SetKeys(fmt.Sprintf("k%d", i))
		each.AddProperty("n", fmt.Sprint(i))
		send(producer, each)
	}
	say("tags", sorted(bodies(consumer(endpoint, "tags", "normal", rmq.NewFilterExpression("t1")), 10, 16)))
	properties := rmq.NewFilterExpressionWithType("n > 16", rmq.SQL92)
	say("properties", sorted(bodies(consumer(endpoint, "properties", "normal", properties), 3, 16)))
}

func changed(endpoint string, producer rmq.Producer) {
	from := consumer(endpoint, "changing", "normal", rmq.NewFilterExpression("late"))
	each := message("normal", "once more")
	each.SetTag("late")
	each.SetKeys("a", "b")
	each.AddProperty("p", "ü")
	send(producer, each)
	first := receive(from, 1)[0]
	must(from.ChangeInvisibleDuration(first, 10*time.Second))
	second := receive(from, 1)[0]
	say("changed", fmt.Sprintf("%s, attempt %d, keys %v, tag %s, p %s", second.GetBody(),
		second.GetDeliveryAttempt(), second.GetKeys(), *second.GetTag(), second.GetProperties()["p"]))
	must(from.Ack(background, second))
}

func ordered(endpoint string, producer rmq.Producer) {
	for i := 0; i < 20; i++ {
		each := message("ordered", fmt.Sprint(i))
		each.SetMessageGroup("one")
		send(producer, each)
	}
	from := consumer(endpoint, "ordering", "ordered", rmq.SUB_ALL)
	say("ordered", strings.Join(bodies(from, 20, 4), " "))
}

func delayed(endpoint string, producer rmq.Producer) {
	from := consumer(endpoint, "delaying", "delayed", rmq.SUB_ALL)
	due := time.Now().Add(4 * time.Second)
	each := message("delayed", "later")
	each.SetDelayTimestamp(due)
	send(producer, each)
	got := receive(from, 1)[0]
	// RocketMQ delivers by whole seconds.
	isEarly := time.Now().Before(due.Add(-time.Second))
	say("delayed", fmt.Sprintf("%s, early %v", got.GetBody(), isEarly))
	must(from.Ack(background, got))
}

func transactions(endpoint string, producer rmq.Producer, checks *atomic.Int32) {
	for _, outcome := range []string{"committed", "rolled back", "left open"} {
		transaction := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(background, message("half", outcome), transaction)
		must(err)
		switch outcome {
		case "committed":
			must(transaction.Commit())
		case "rolled back":
			must(transaction.RollBack())
		}
	}
	got := bodies(consumer(endpoint, "halves", "half", rmq.SUB_ALL), 2, 16)
	say("transactions", fmt.Sprintf("%s, checked %v", sorted(got), checks.Load() > 0))
}
