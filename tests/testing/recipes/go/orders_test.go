package orders

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	data      string
	bootstrap string
)

func TestMain(m *testing.M) {
	os.Exit(withTidelog(m.Run))
}

// withTidelog runs tests while a broker is there.
func withTidelog(run func() int) int {
	var err error
	if data, err = os.MkdirTemp("", "tidelog"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(data)
	broker := exec.Command("tidelog", "serve", "--port", "0", "--data-dir", data, "--test-control", "--stop-at-eof",
		"--log-level", "warning")
	broker.Stderr = os.Stderr
	stdin, _ := broker.StdinPipe()
	stdout, _ := broker.StdoutPipe()
	if err := broker.Start(); err != nil {
		panic(err)
	}
	defer broker.Wait()
	// It stops when its input ends, as with the end of this process.
	defer stdin.Close()
	// The first line comes when it is ready.
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		panic(err)
	}
	bootstrap = ask(map[string]any{"do": "hello"})["bootstrap"].(string)
	return run()
}

// ask has the broker do something, and returns its answer.
func ask(command map[string]any) (answer map[string]any) {
	control, err := net.Dial("unix", data+"/.control")
	if err != nil {
		panic(err)
	}
	defer control.Close()
	if err := json.NewEncoder(control).Encode(command); err != nil {
		panic(err)
	}
	if err := json.NewDecoder(control).Decode(&answer); err != nil || answer["ok"] != true {
		panic(fmt.Sprint(err, answer))
	}
	return answer
}

func TestAnOrderSurvivesAMoveOfItsPartition(t *testing.T) {
	ask(map[string]any{"do": "create_topic", "name": "orders"})
	ask(map[string]any{"do": "fault", "api": "produce", "times": 3, "error": "NOT_LEADER_OR_FOLLOWER", "topic": "orders"})

	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	order := &kgo.Record{Topic: "orders", Value: []byte("tea")}
	if err := client.ProduceSync(context.Background(), order).FirstErr(); err != nil {
		t.Fatal(err)
	}

	if seen := ask(map[string]any{"do": "faults_seen"})["seen"].([]any); len(seen) != 3 {
		t.Errorf("%d faults, not 3: %v", len(seen), seen)
	}
	if end := ask(map[string]any{"do": "offsets", "topic": "orders"})["log_end_offset"]; end != 1.0 {
		t.Errorf("%v orders, not one", end)
	}
}
