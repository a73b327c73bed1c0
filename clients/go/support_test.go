package rheostat

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	password = "open sesame"
	keyspace = "default"
	patience = time.Minute
)

var (
	suite       = os.Getenv("RHEOSTAT_SUITE")
	dataCenters = []string{"us-east", "us-west", "eu"}
	eastAlone   = [][2]string{{"us-east", "us-west"}, {"us-east", "eu"}}
)

func TestMain(m *testing.M) {
	if suite == "" {
		fmt.Println("these tests need the cluster that clients/test.sh starts: clients/test.sh go")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func port(dataCenter string) int {
	base, _ := strconv.Atoi(os.Getenv("RHEOSTAT_PORT"))
	for i, name := range dataCenters {
		if name == dataCenter {
			return base + 10*i
		}
	}
	panic(dataCenter)
}

func key(name string) string {
	var bytes [6]byte
	_, _ = rand.Read(bytes[:])
	return "go:" + name + ":" + hex.EncodeToString(bytes[:])
}

func at(dataCenter string) *redis.Options { return atPort(port(dataCenter)) }

func atPort(port int) *redis.Options {
	return &redis.Options{
		Addr: fmt.Sprintf("127.0.0.1:%d", port), Password: password,
		DialTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second, PoolTimeout: 40 * time.Second,
	}
}

func connect(t *testing.T, options Options, regions ...*redis.Options) *Client {
	t.Helper()
	var clients []*redis.Client
	for _, region := range regions {
		rdb := redis.NewClient(region)
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	client := must(New(options, clients...))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func connectTo(t *testing.T, dataCenter string) *Client { return connect(t, Options{}, at(dataCenter)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%v, and not: %v", err, kind)
	}
}

func holds(t *testing.T, condition bool, what ...any) {
	t.Helper()
	if !condition {
		t.Fatal(what...)
	}
}

func eventually(t *testing.T, what string, attempt func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !attempt(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("never came: ", what)
		}
	}
}

func ctl(words ...string) {
	output, err := exec.Command(os.Getenv("RHEOSTAT"), append([]string{"ctl"}, words...)...).CombinedOutput()
	if err != nil {
		panic(fmt.Sprint(words, ": ", err, ": ", string(output)))
	}
}

// cut cuts links, until the test's end or until what is returned is called.
func cut(t *testing.T, links ...[2]string) (heal func()) {
	address := fmt.Sprintf("127.0.0.1:%d", port("us-east")+1)
	for _, link := range links {
		ctl("--address", address, "pause-link", link[0], link[1])
	}
	heal = sync.OnceFunc(func() {
		for _, link := range links {
			ctl("--address", address, "resume-link", link[0], link[1])
		}
	})
	t.Cleanup(heal)
	return heal
}

func tell(dataCenter string, what os.Signal) {
	text := must(os.ReadFile(filepath.Join(suite, "nodes", dataCenter+"-1", "pid")))
	process := must(os.FindProcess(must(strconv.Atoi(strings.Fields(string(text))[0]))))
	if err := process.Signal(what); err != nil {
		panic(err)
	}
}

func startAgain() { ctl("cluster", "up", filepath.Join(suite, "cluster.toml")) }

// proxy passes bytes on. What has marker in it is passed on, and its answer is not: the connection is lost instead, the first `times` times.
// While it hangs, nothing is passed on. One that ends takes no connection after the first that it has lost.
type proxy struct {
	port  int
	seen  atomic.Int64
	hangs atomic.Bool
	ends  atomic.Bool

	mutex   sync.Mutex
	clients []net.Conn
}

// drop loses all connections.
func (p *proxy) drop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, client := range p.clients {
		_ = client.Close()
	}
	p.clients = nil
}

func newProxy(t *testing.T, target int, marker string, times int64) *proxy {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{port: listener.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.mutex.Lock()
			p.clients = append(p.clients, client)
			p.mutex.Unlock()
			server := must(net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", target)))
			var lose atomic.Bool
			go func() {
				defer func() { _ = server.Close() }()
				buffer := make([]byte, 65536)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					if bytes.Contains(buffer[:n], []byte(marker)) && p.seen.Add(1) <= times {
						lose.Store(true)
						if p.ends.Load() {
							_ = listener.Close()
						}
					}
					if !p.hangs.Load() {
						_, _ = server.Write(buffer[:n])
					}
				}
			}()
			go func() {
				defer func() { _ = client.Close() }()
				buffer := make([]byte, 65536)
				for {
					n, err := server.Read(buffer)
					if err != nil || lose.Load() {
						return
					}
					_, _ = client.Write(buffer[:n])
				}
			}()
		}
	}()
	return p
}

// watch has a predicate over keys of the keyspace eventual watched for.
func watch(name, expression string) {
	ctl("--address", fmt.Sprintf("127.0.0.1:%d", port("us-east")+1), "monitor", "add", name, expression, "--keyspace", "eventual")
}

// plainRedis speaks enough of Redis to be asked for RHEO, and says that it does not know it. One that has alarms knows it, tells so many to whoever listens first,
// and refuses all after that. One that is opening its data answers with LOADING to all but the commands that it greets. One that is busy knows RHEO, loses the connection
// on which the first update of a counter comes, and answers those that follow with BUSY.
type plainRedis struct {
	port     int
	asked    atomic.Int64
	updates  atomic.Int64
	isBusy   bool
	mutex    sync.Mutex
	commands map[string]bool
}

func newPlainRedis(t *testing.T) *plainRedis { return newTellingRedis(t, false, 0) }

func newTellingRedis(t *testing.T, resp3 bool, alarms int) *plainRedis {
	return newFakeRedis(t, resp3, alarms, nil, false)
}

func newOpeningRedis(t *testing.T, greets string) *plainRedis {
	return newFakeRedis(t, false, 0, words(greets), false)
}

func newBusyRedis(t *testing.T) *plainRedis {
	return newFakeRedis(t, false, 0, nil, true)
}

func alarm(number int) string {
	var pairs strings.Builder
	for _, said := range [][2]string{{"what", "possible"}, {"monitor", "m"}, {"keyspace", "k"}, {"node", "n"}, {"not_before", "1.0"}} {
		fmt.Fprintf(&pairs, "$%d\r\n%s\r\n$%d\r\n%s\r\n", len(said[0]), said[0], len(said[1]), said[1])
	}
	return fmt.Sprintf(">2\r\n$7\r\nmonitor\r\n%%8\r\n%s$6\r\nnumber\r\n:%d\r\n$5\r\nat_ms\r\n:1\r\n$8\r\nevidence\r\n*0\r\n", &pairs, number)
}

func newFakeRedis(t *testing.T, resp3 bool, alarms int, greets map[string]bool, isBusy bool) *plainRedis {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	p := &plainRedis{port: listener.Addr().(*net.TCPAddr).Port, isBusy: isBusy, commands: map[string]bool{}}
	known := words("SELECT SET GET CLIENT AUTH PING")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = client.Close() }()
				reader := bufio.NewReader(client)
				for {
					args, err := readCommand(reader)
					if err != nil {
						return
					}
					name := strings.ToUpper(args[0])
					p.mutex.Lock()
					listened := p.commands["RHEO"] && alarms > 0
					p.commands[name] = true
					p.mutex.Unlock()
					p.asked.Add(1)
					answer := "+OK\r\n"
					switch {
					case greets != nil && !greets[name]:
						answer = "-LOADING this node is opening its data: 0 of 2 partition servers are open\r\n"
					case p.isBusy && name == "RHEO" && args[1] == "COUNTER":
						if p.updates.Add(1) == 1 {
							return
						}
						answer = "-BUSY too much waits here\r\n"
					case p.isBusy && name == "RHEO":
						if args[1] == "QUALITY" {
							answer = "*0\r\n"
						}
					case name == "HELLO" && resp3:
						answer = "%1\r\n$5\r\nproto\r\n:3\r\n"
					case name == "RHEO" && listened:
						answer = "-NOPERM no more\r\n"
					case name == "PING" && listened:
						answer = "-NOAUTH Authentication required.\r\n"
					case name == "RHEO" && alarms > 0:
						for number := range alarms {
							answer += alarm(number)
						}
					case !known[name]:
						answer = fmt.Sprintf("-ERR unknown command '%s', with args beginning with: \r\n", args[0])
					}
					_, _ = io.WriteString(client, answer)
				}
			}()
		}
	}()
	return p
}

// silentRedis takes connections, and answers nothing. One that greets answers all but RHEO.
type silentRedis struct {
	port int
	// What it has not answered, and how many connections there are.
	asked, there atomic.Int64
}

func newSilentRedis(t *testing.T, greets bool) *silentRedis {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	s := &silentRedis{port: listener.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			s.there.Add(1)
			go func() {
				defer s.there.Add(-1)
				defer func() { _ = client.Close() }()
				reader := bufio.NewReader(client)
				for {
					args, err := readCommand(reader)
					if err != nil {
						return
					}
					switch name := strings.ToUpper(args[0]); {
					case !greets || name == "RHEO":
						s.asked.Add(1)
					case name == "HELLO":
						_, _ = io.WriteString(client, "%1\r\n$5\r\nproto\r\n:3\r\n")
					default:
						_, _ = io.WriteString(client, "+OK\r\n")
					}
				}
			}()
		}
	}()
	return s
}

func readCommand(reader *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := reader.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	count, err := number()
	if err != nil {
		return nil, err
	}
	args := make([]string, count)
	for i := range args {
		length, err := number()
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(reader, word); err != nil {
			return nil, err
		}
		args[i] = string(word[:length])
	}
	return args, nil
}

func unusedPort() int {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

var ctx = context.Background()
