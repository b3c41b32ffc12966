// Command member is a member of a consumer group: as member.py, by franz-go.
//
//	member BOOTSTRAP GROUP TOPIC SESSION_MS
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	speaking sync.Mutex
	has      = map[int32]bool{}
)

func say(words ...any) {
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(words...)
}

func change(topic string, gains bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		speaking.Lock()
		for _, partition := range partitions[topic] {
			if gains {
				has[partition] = true
			} else {
				delete(has, partition)
			}
		}
		numbers := make([]int, 0, len(has))
		for partition := range has {
			numbers = append(numbers, int(partition))
		}
		speaking.Unlock()
		sort.Ints(numbers)
		if gains {
			say("A " + strings.Trim(fmt.Sprint(numbers), "[]"))
		}
	}
}

func main() {
	topic := os.Args[3]
	sessionMs, err := strconv.Atoi(os.Args[4])
	if err != nil {
		panic(err)
	}
	session := time.Duration(sessionMs) * time.Millisecond
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(session/5),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(change(topic, true)),
		kgo.OnPartitionsRevoked(change(topic, false)),
		kgo.OnPartitionsLost(change(topic, false)),
	)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		ends := map[int32]int64{}
		fetches.EachRecord(func(record *kgo.Record) {
			say("R", record.Partition, record.Offset)
			ends[record.Partition] = record.Offset + 1
		})
		if len(ends) == 0 {
			continue
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			say("E", err)
			continue
		}
		for partition, end := range ends {
			say("C", partition, end)
		}
	}
	client.Close()
}
