// Command main ENDPOINT [newer]: prints one line per outcome, the same for every broker; and with "newer" a line
// "= FEATURE: yes", or what happened instead, for those of RocketMQ 5.5.
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
	made, err := rmq.NewSimpleConsumer(config(endpoint, group), rmq.WithSimpleAwaitDuration(3*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: expression}))
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
	if len(os.Args) > 2 {
		newer(endpoint, producer)
	}
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

func same(name, expected, found string) {
	if expected == found {
		say(name, "yes")
	} else {
		say(name, "not "+expected+", but "+found)
	}
}

func newer(endpoint string, producer rmq.Producer) {
	retries(endpoint, producer)
	recalled(endpoint, producer)
	priority(endpoint, producer)
	lite(endpoint, producer)
}

func pushed(endpoint, group, topic, tag string, listener func(*rmq.MessageView) rmq.ConsumerResult) {
	made, err := rmq.NewPushConsumer(config(endpoint, group), rmq.WithPushAwaitDuration(3*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.NewFilterExpression(tag)}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: listener}))
	must(err)
	must(made.Start())
}

// until returns the next texts of a channel, in alphabetical order.
func until(from chan string, count int) string {
	found := []string{}
	for len(found) < count {
		select {
		case each := <-from:
			found = append(found, each)
		case <-time.After(patience):
			return sorted(found) + " (no more)"
		}
	}
	return sorted(found)
}

func retries(endpoint string, producer rmq.Producer) {
	each := message("normal", "again")
	each.SetTag("retries")
	send(producer, each)
	attempts := make(chan string, 8)
	pushed(endpoint, "retrying", "normal", "retries", func(got *rmq.MessageView) rmq.ConsumerResult {
		attempts <- fmt.Sprint(got.GetDeliveryAttempt())
		if got.GetDeliveryAttempt() < 2 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	same("retries", "1 2", until(attempts, 2))
	dead := message("ordered", "dead")
	dead.SetTag("deaths")
	dead.SetMessageGroup("g")
	send(producer, dead)
	pushed(endpoint, "dying", "ordered", "deaths", func(*rmq.MessageView) rmq.ConsumerResult { return rmq.FAILURE })
	same("dead letters", "dead", strings.Join(bodies(consumer(endpoint, "burying", "%DLQ%dying", rmq.SUB_ALL), 1, 1), " "))
}

func recalled(endpoint string, producer rmq.Producer) {
	from := consumer(endpoint, "recalling", "delayed", rmq.NewFilterExpression("recalls"))
	due := time.Now().Add(4 * time.Second)
	later := func(body string, at time.Time) string {
		each := message("delayed", body)
		each.SetTag("recalls")
		each.SetDelayTimestamp(at)
		sent, err := producer.Send(background, each)
		must(err)
		return sent[0].RecallHandle
	}
	_, err := producer.Recall(background, "delayed", later("recalled", due))
	must(err)
	later("last", due.Add(1500*time.Millisecond))
	same("recall", "last", strings.Join(bodies(from, 1, 16), " "))
}

func priority(endpoint string, producer rmq.Producer) {
	for i := int32(0); i < 4; i++ {
		each := message("jobs", fmt.Sprintf("p%d", i))
		must(each.SetPriority(i))
		send(producer, each)
	}
	same("priority", "p3 p2 p1 p0", strings.Join(bodies(consumer(endpoint, "working", "jobs", rmq.SUB_ALL), 4, 1), " "))
}

func lite(endpoint string, producer rmq.Producer) {
	got := make(chan string, 8)
	made, err := rmq.NewLitePushConsumer(config(endpoint, "chatting"), rmq.NewLitePushConsumerConfig("chats", invisible),
		rmq.WithPushAwaitDuration(3*time.Second), rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(each *rmq.MessageView) rmq.ConsumerResult {
				got <- string(each.GetBody())
				return rmq.SUCCESS
			},
		}))
	must(err)
	must(made.Start())
	must(made.SubscribeLite("ann"))
	for _, name := range []string{"bob", "ann"} {
		each := message("chats", "to "+name)
		each.SetLiteTopic(name)
		send(producer, each)
	}
	first := until(got, 1)
	must(made.SubscribeLite("bob"))
	same("Lite topics", "to ann, to bob", first+", "+until(got, 1))
}
