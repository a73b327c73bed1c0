package rheostat

// The cases of ../suite/suite.toml.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func within(d time.Duration) Dial { return Dial{Within: d} }

func bounds(lower, initial int64) NewCounter { return NewCounter{Lower: &lower, Initial: initial} }

func Test_session_waits_in_another_region(t *testing.T) {
	k, east, eu := key("waits"), connectTo(t, "us-east"), connectTo(t, "eu")
	session := east.Session(keyspace)
	heal := cut(t, eastAlone...)
	must(session.Put(ctx, k, "here", 0))
	elsewhere := eu.Resume(keyspace, session.Token())
	_, err := elsewhere.WithDial(within(200*time.Millisecond)).Get(ctx, k)
	is(t, err, ErrTimeout)
	holds(t, must(eu.Session(keyspace).Get(ctx, k)).Value == nil, "a new session sees it")
	heal()
	eventually(t, "the write", func() bool { read, err := elsewhere.Get(ctx, k); return err == nil && string(read.Value) == "here" })
}

func Test_token_resumes_in_another_client(t *testing.T) {
	session := connectTo(t, "us-east").Session(keyspace)
	for turn := range 10 {
		k, value := key("token"), fmt.Sprint(turn)
		must(session.Put(ctx, k, value, 0))
		for _, place := range dataCenters {
			read := must(connectTo(t, place).Resume(keyspace, session.Token()).Get(ctx, k))
			holds(t, string(read.Value) == value, place, string(read.Value))
		}
	}
}

func Test_session_is_carried_over_connections(t *testing.T) {
	k, client := key("pool"), connectTo(t, "us-east")
	session := client.Session(keyspace)
	must(session.Put(ctx, k, "first", 0))
	id := func() int64 {
		cmd := redis.NewIntCmd(ctx, "CLIENT", "ID")
		if err := session.Process(ctx, cmd); err != nil {
			t.Fatal(err)
		}
		return cmd.Val()
	}
	first, before := id(), session.Token()
	busy := client.regions[0].rdb.Conn()
	defer func() { _ = busy.Close() }()
	holds(t, must(busy.ClientID(ctx).Result()) == first, "another connection than the pool's")
	must(session.Put(ctx, k+"2", "second", 0))
	holds(t, id() != first && session.Token() != before, "the same connection")
	holds(t, string(must(session.Get(ctx, k)).Value) == "first" && string(must(session.Get(ctx, k+"2")).Value) == "second")
}

func Test_no_effect_before_its_cause(t *testing.T) {
	photo, comment := key("photo"), key("comment")
	east, west, eu := connectTo(t, "us-east"), connectTo(t, "us-west"), connectTo(t, "eu")
	heal := cut(t, [2]string{"us-east", "eu"})
	session := east.Session(keyspace)
	must(session.Put(ctx, photo, "sunset", 0))
	moved := session.At(west)
	holds(t, string(must(moved.Get(ctx, photo)).Value) == "sunset")
	must(moved.Put(ctx, comment, "wow", 0))
	looks := 0
	eventually(t, "photo and comment", func() bool {
		seen := must(eu.Session(keyspace).ReadTransaction(ctx, comment, photo)).Values
		holds(t, seen[0] == nil || seen[1] != nil, "an effect without its cause")
		if looks++; looks == 20 {
			heal()
		}
		return string(seen[0]) == "wow" && string(seen[1]) == "sunset"
	})
}

func Test_merge_joins_two_sessions(t *testing.T) {
	k, writer, reader := key("merge"), connectTo(t, "us-east").Session(keyspace), connectTo(t, "eu").Session(keyspace)
	must(reader.Put(ctx, key("own"), "mine", 0))
	heal := cut(t, eastAlone...)
	must(writer.Put(ctx, k, "yours", 0))
	holds(t, must(reader.Get(ctx, k)).Value == nil)
	holds(t, reader.Merge(ctx, writer.Token()) == nil)
	_, err := reader.WithDial(within(200*time.Millisecond)).Get(ctx, k)
	is(t, err, ErrTimeout)
	heal()
	eventually(t, "the write", func() bool { read, err := reader.Get(ctx, k); return err == nil && string(read.Value) == "yours" })
}

func Test_concurrent_use_of_one_session(t *testing.T) {
	session := connectTo(t, "us-east").Session(keyspace)
	keys := make([]string, 20)
	var group sync.WaitGroup
	for i := range keys {
		keys[i] = key("together")
		group.Add(1)
		go func() {
			defer group.Done()
			for turn := range 5 {
				value := fmt.Sprint(turn)
				must(session.Put(ctx, keys[i], value, 0))
				if read := must(session.Get(ctx, keys[i])); string(read.Value) != value {
					t.Errorf("%s and not %s", read.Value, value)
				}
			}
		}()
	}
	group.Wait()
	seen := must(connectTo(t, "eu").Resume(keyspace, session.Token()).ReadTransaction(ctx, keys...))
	for _, value := range seen.Values {
		holds(t, string(value) == "4", string(value))
	}
}

func Test_pool_of_fifty_connections(t *testing.T) {
	options := at("us-east")
	options.PoolSize = 50
	client := connect(t, Options{}, options)
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			session, k := client.Session(keyspace), key("fifty")
			for turn := range 10 {
				value := fmt.Sprint(turn)
				must(session.Put(ctx, k, value, 0))
				if read := must(session.Get(ctx, k)); string(read.Value) != value {
					t.Errorf("%s and not %s", read.Value, value)
				}
			}
		}()
	}
	group.Wait()
	holds(t, client.regions[0].rdb.PoolStats().TotalConns <= 50)
}

func Test_nothing_of_a_session_stays_on_a_connection(t *testing.T) {
	options := at("us-east")
	options.PoolSize = 1
	client, k := connect(t, Options{}, options), key("stays")
	dial := Dial{Level: "eventual", Strategy: "coordinated", Fresh: time.Minute, Within: 5 * time.Second, ServiceLevel: "eventual 2s"}
	must(client.Session(keyspace).Put(ctx, key("seen"), "x", 0))
	session := client.Session("eventual").WithDial(dial)
	must(session.Put(ctx, k, "x", 0))
	holds(t, string(must(session.Get(ctx, k)).Value) == "x")
	ask := func(args ...any) any {
		reply, err := client.regions[0].rdb.Do(ctx, args...).Result()
		holds(t, err == nil || errors.Is(err, redis.Nil), err)
		return reply
	}
	fresh := connectTo(t, "us-east").regions[0].rdb
	holds(t, len(ask("RHEO", "SESSION", "GET").(string)) == len(must(fresh.Do(ctx, "RHEO", "SESSION", "GET").Text())), "a session is left")
	holds(t, ask("RHEO", "LEVEL") == "causal" && ask("RHEO", "STRATEGY") == "auto")
	holds(t, ask("RHEO", "SLA") == nil && ask("RHEO", "FRESH") == nil && ask("RHEO", "WITHIN") == nil)
	holds(t, ask("GET", k) == nil, "the connection is in its own keyspace again")
}

func Test_redis_client_keeps_its_commands(t *testing.T) {
	client, k := connectTo(t, "us-east"), key("usual")
	rdb := redis.NewClient(at("us-east"))
	defer func() { _ = rdb.Close() }()
	rdb.AddHook(client.Hook())
	session := client.Session(keyspace)
	mine := WithSession(ctx, session)
	holds(t, must(rdb.Set(mine, k, "text", 0).Result()) == "OK" && session.Token() != "")
	before := session.Token()
	holds(t, must(rdb.Get(mine, k).Result()) == "text")
	holds(t, must(rdb.MGet(mine, k, k+"no").Result())[1] == nil)
	holds(t, rdb.Get(mine, k+"no").Err() == redis.Nil, "as go-redis says it")
	holds(t, must(rdb.IncrBy(mine, k+"n", 3).Result()) == 3 && must(rdb.Del(mine, k).Result()) == 1)
	holds(t, session.Token() != before)
	is(t, rdb.Do(mine, "SELECT", 1).Err(), ErrRefused)
	for _, about := range []string{"LEVEL strong", "AT -1s", "RECEIPT ON", "MONITOR LISTEN"} {
		words := strings.Fields(about)
		is(t, rdb.Do(mine, "RHEO", words[0], words[1]).Err(), ErrRefused)
	}
	is(t, rdb.IncrBy(mine, k+"n", 1<<62).Err(), nil)
	is(t, rdb.IncrBy(mine, k+"n", 1<<62).Err(), ErrRefused)
	before = session.Token()
	holds(t, must(rdb.Set(ctx, k, "without", 0).Result()) == "OK" && session.Token() == before, "without a session in the context")
}

func Test_pipeline_is_part_of_the_session(t *testing.T) {
	client := connectTo(t, "us-east")
	rdb := redis.NewClient(at("us-east"))
	defer func() { _ = rdb.Close() }()
	rdb.AddHook(client.Hook())
	session := client.Session(keyspace)
	mine, k, word := WithSession(ctx, session), "{pipe}"+key("a"), "{pipe}"+key("b")
	fill := func(pipe redis.Pipeliner) error {
		pipe.Set(mine, k, "1", 0)
		pipe.Set(mine, word, "a word", 0)
		pipe.Incr(mine, word)
		pipe.Get(mine, k)
		return nil
	}
	for _, run := range []func() ([]redis.Cmder, error){
		func() ([]redis.Cmder, error) { return session.Pipelined(mine, fill) },
		func() ([]redis.Cmder, error) { return rdb.Pipelined(mine, fill) },
	} {
		before := session.Token()
		cmds, err := run()
		is(t, err, ErrRefused)
		is(t, cmds[2].Err(), ErrRefused)
		holds(t, cmds[0].Err() == nil && cmds[1].Err() == nil && cmds[3].(*redis.StringCmd).Val() == "1", cmds)
		holds(t, session.Token() != before)
	}
	_, err := rdb.TxPipelined(mine, fill)
	is(t, err, ErrRefused)
	before := session.Token()
	var got *redis.StringCmd
	_, err = rdb.TxPipelined(mine, func(pipe redis.Pipeliner) error {
		pipe.Set(mine, k, "2", 0)
		got = pipe.Get(mine, k)
		return nil
	})
	holds(t, err == nil && got.Val() == "2" && session.Token() != before, err)
	// What begins as one, and is none, is refused.
	for _, more := range []int{0, 1} {
		_, err = rdb.Pipelined(mine, func(pipe redis.Pipeliner) error {
			pipe.Do(mine, "MULTI")
			for range more {
				pipe.Set(mine, k, "3", 0)
			}
			return nil
		})
		is(t, err, ErrRefused)
	}
	holds(t, string(must(session.Get(mine, k)).Value) == "2")
}

func Test_foreign_token_is_refused(t *testing.T) {
	options, k := at("us-east"), key("foreign")
	options.PoolSize = 1
	client := connect(t, Options{}, options)
	other, own := client.Session("eventual"), client.Session(keyspace)
	must(other.Put(ctx, k, "there", 0))
	must(own.Put(ctx, k, "before", 0))
	good := own.Token()
	damaged := good[:len(good)-4] + "0000"
	if damaged == good {
		damaged = good[:len(good)-4] + "1111"
	}
	for _, token := range []string{other.Token(), damaged, "a word"} {
		session := client.Resume(keyspace, token)
		_, put := session.Put(ctx, k, "after", 0)
		_, get := session.Get(ctx, k)
		for _, err := range []error{put, get, session.Check(ctx), own.Merge(ctx, token)} {
			is(t, err, ErrToken)
		}
		holds(t, session.Token() == token)
	}
	holds(t, string(must(own.Get(ctx, k)).Value) == "before")
}

// web is a web application in a data center: PUT and GET of a key.
func web(t *testing.T, place string) func(method, path, body string, header http.Header) *http.Response {
	client := connectTo(t, place)
	rdb := redis.NewClient(at(place))
	rdb.AddHook(client.Hook())
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		ctx := request.Context()
		if request.Method == http.MethodPut {
			body, _ := io.ReadAll(request.Body)
			holds(t, rdb.Set(ctx, request.URL.Path, body, 0).Err() == nil && FromContext(ctx) != nil)
			writer.WriteHeader(http.StatusNoContent)
			return
		}
		value, _ := rdb.Get(ctx, request.URL.Path).Bytes()
		_, _ = writer.Write(value)
	})
	server := httptest.NewServer(Middleware(client, keyspace)(handler))
	t.Cleanup(func() { server.Close(); _ = rdb.Close() })
	return func(method, path, body string, header http.Header) *http.Response {
		request := must(http.NewRequest(method, server.URL+path, strings.NewReader(body)))
		request.Header = header
		return must(http.DefaultClient.Do(request))
	}
}

func Test_middleware_carries_the_session(t *testing.T) {
	east, eu := web(t, "us-east"), web(t, "eu")
	header := http.Header{}
	for turn := range 10 {
		path, body := "/"+key("web"), fmt.Sprint(turn)
		answer := east(http.MethodPut, path, body, header)
		_ = answer.Body.Close()
		holds(t, answer.StatusCode == http.StatusNoContent)
		header = http.Header{SessionHeader: answer.Header[SessionHeader]}
		answer = eu(http.MethodGet, path, "", header)
		read, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		holds(t, string(read) == body, string(read))
	}
}

func Test_middleware_refuses_a_foreign_token(t *testing.T) {
	east, path := web(t, "us-east"), "/"+key("web")
	for _, token := range []string{"a word", strings.Repeat("x", 20000)} {
		answer := east(http.MethodPut, path, "x", http.Header{SessionHeader: {token}})
		body, _ := io.ReadAll(answer.Body)
		holds(t, answer.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte(SessionHeader)), answer.Status, string(body))
	}
	answer := east(http.MethodGet, path, "", http.Header{})
	body, _ := io.ReadAll(answer.Body)
	holds(t, answer.StatusCode == http.StatusOK && len(body) == 0 && answer.Header.Get(SessionHeader) != "", answer.Header)
}

func Test_middleware_hands_connections_over(t *testing.T) {
	carry := Middleware(connectTo(t, "us-east"), keyspace)
	server := httptest.NewServer(carry(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		if connection, _, err := writer.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken")
			_ = connection.Close()
		}
	})))
	defer server.Close()
	answer := must(http.Get(server.URL))
	defer func() { _ = answer.Body.Close() }()
	holds(t, string(must(io.ReadAll(answer.Body))) == "taken")
}

func Test_level_per_call(t *testing.T) {
	session, k := connectTo(t, "us-east").Session(keyspace), key("level")
	must(session.Put(ctx, k, "x", 0))
	level := func(session *Session) string { return must(session.Get(ctx, k)).Level }
	holds(t, level(session) == "causal")
	eventual := session.WithDial(Dial{Level: "eventual"})
	holds(t, level(eventual) == "eventual")
	token := session.Token()
	must(eventual.Put(ctx, k, "y", 0))
	holds(t, eventual.Token() == session.Token() && token != session.Token())
	holds(t, level(session) == "causal")
	session.SetLevel("eventual")
	holds(t, level(session) == "eventual" && level(session) == "eventual")
	session.SetLevel("")
	holds(t, level(session) == "causal")
}

func Test_level_that_is_not_served_is_refused(t *testing.T) {
	client, k := connectTo(t, "us-east"), key("strong")
	session := client.Session(keyspace)
	_, err := session.WithDial(Dial{Level: "strong"}).Put(ctx, k, "x", 0)
	is(t, err, ErrRefused)
	holds(t, strings.Contains(err.Error(), "strong"), err)
	_, err = client.Session("nowhere").Put(ctx, k, "x", 0)
	is(t, err, ErrRefused)
	holds(t, must(session.Get(ctx, k)).Value == nil)
}

func Test_service_level_says_what_was_reached(t *testing.T) {
	session, k := connectTo(t, "us-east").Session(keyspace), key("sla")
	must(session.Put(ctx, k, "x", 0))
	session.SetServiceLevel("strong 1s; causal 1s; eventual")
	read := must(session.Get(ctx, k))
	holds(t, string(read.Value) == "x" && read.Level == "causal" && read.Achieved != nil && read.Achieved.Entry == 2 && read.Achieved.Used >= 0, read)
	holds(t, read.Achieved.AnsweredIn == "us-east" && read.Achieved.DataCenters == 0, read.Achieved)
	session.SetServiceLevel("")
	holds(t, must(session.Get(ctx, k)).Achieved == nil)
	_, err := session.WithDial(Dial{ServiceLevel: "strong soon"}).Get(ctx, k)
	is(t, err, ErrRefused)
}

func Test_bounds_of_one_call(t *testing.T) {
	session, k := connectTo(t, "eu").Session(keyspace), key("bounds")
	must(session.Put(ctx, k, "x", 0))
	cut(t, eastAlone...)
	_, err := session.WithDial(Dial{Fresh: time.Millisecond, Within: 100 * time.Millisecond}).Get(ctx, k)
	is(t, err, ErrTimeout)
	holds(t, string(must(session.Get(ctx, k)).Value) == "x")
	// It may wait for longer than a reply may take.
	hurried := at("eu")
	hurried.ReadTimeout = 2 * time.Second
	session = connect(t, Options{ReadRetries: -1}, hurried, at("us-west")).Session(keyspace)
	_, err = session.WithDial(Dial{Fresh: time.Millisecond, Within: 3 * time.Second}).Get(ctx, k)
	is(t, err, ErrTimeout)
	holds(t, must(session.Put(ctx, key("bounds"), "x", 0)).Origin == "eu")
}

func Test_quality_of_a_read(t *testing.T) {
	session, k := connectTo(t, "us-east").Session(keyspace), key("quality")
	version := must(session.Put(ctx, k, "x", 0))
	var read Read
	eventually(t, "a bound", func() bool { read = must(session.Get(ctx, k)); return read.Staleness != nil })
	holds(t, *read.Version == version && version.Origin == "us-east" && read.Level == "causal" && *read.Staleness >= 0, read)
	holds(t, must(ParseVersion(version.String())) == version && *session.Quality().Version == version)
}

func Test_receipt_of_a_write(t *testing.T) {
	session := connectTo(t, "us-east").Session(keyspace)
	must(session.Put(ctx, key("receipt"), "x", 0))
	holds(t, must(session.Wait(ctx, 2, 15*time.Second)) == 2)
	hurried := at("us-east")
	hurried.ReadTimeout = 2 * time.Second
	session = connect(t, Options{ReadRetries: -1}, hurried, at("eu")).Resume(keyspace, session.Token())
	// There are not so many, so it is answered when its time is over.
	holds(t, must(session.Wait(ctx, 9, 4*time.Second)) == 2)
	own := redis.NewIntCmd(ctx, "wait", 9, 4000)
	holds(t, session.Process(ctx, own) == nil && own.Val() == 2, own.Err())
	holds(t, must(session.Put(ctx, key("receipt"), "x", 0)).Origin == "us-east")
}

func Test_timeouts_that_are_switched_off_stay_so(t *testing.T) {
	none := at("us-east")
	none.ReadTimeout, none.WriteTimeout = -1, -1
	own := connect(t, Options{}, none).regions[0].rdb.Options()
	holds(t, own.ReadTimeout == 0 && own.WriteTimeout == 0, own.ReadTimeout, own.WriteTimeout)
}

func Test_read_transaction_reads_one_snapshot(t *testing.T) {
	client := connectTo(t, "us-east")
	first, second := "{1}"+key("first"), "{5}"+key("second")
	done := make(chan struct{})
	go func() {
		defer close(done)
		writer := client.Session(keyspace)
		for turn := range 100 {
			must(writer.Put(ctx, first, fmt.Sprint(turn), 0))
			must(writer.Put(ctx, second, fmt.Sprint(turn), 0))
		}
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		values := must(client.Session(keyspace).ReadTransaction(ctx, first, second)).Values
		one, two := -1, -1
		_, _ = fmt.Sscan(string(values[0]), &one)
		_, _ = fmt.Sscan(string(values[1]), &two)
		holds(t, two <= one && one <= two+1, one, two)
	}
}

func Test_conditional_write(t *testing.T) {
	client, k := connectTo(t, "us-east"), key("if")
	session := client.Session("strong")
	eventually(t, "a leader", func() bool {
		version, err := session.PutIf(ctx, k, "a", Absent(), 0)
		return err == nil && version != nil
	})
	holds(t, must(session.PutIf(ctx, k, "b", Absent(), 0)) == nil)
	holds(t, must(session.PutIf(ctx, k, "b", Value("x"), 0)) == nil)
	holds(t, string(must(session.Get(ctx, k)).Value) == "a")
	version := must(session.PutIf(ctx, k, "b", Value("a"), 0))
	holds(t, version != nil && *must(session.Get(ctx, k)).Version == *version)
	_, err := client.Session(keyspace).PutIf(ctx, k, "a", Absent(), 0)
	is(t, err, ErrRefused)
}

func Test_counter_keeps_its_bounds(t *testing.T) {
	session, k := connectTo(t, "us-east").Session(keyspace), "{c}"+key("stock")
	stock := session.Counter(k)
	holds(t, stock.Create(ctx, bounds(0, 10)) == nil)
	is(t, stock.Create(ctx, NewCounter{}), ErrRefused)
	holds(t, must(stock.Add(ctx, -1)) == 9)
	_, err := stock.Add(ctx, -100)
	is(t, err, ErrNoRights)
	var lack *NoRights
	holds(t, errors.As(err, &lack) && lack.Key == k && lack.Value == 9 && lack.Direction == "down" && lack.Needed == 100 && lack.Here+lack.Elsewhere <= 9, err)
	eventually(t, "all rights", func() bool { value, err := stock.Global().Add(ctx, -9); return err == nil && value == 0 })
	_, err = stock.Global().Add(ctx, -1)
	is(t, err, ErrNoRights)
	other, upper := session.Counter("{c}"+key("other")), int64(100)
	counter := bounds(0, 5)
	counter.Upper, counter.Placement = &upper, []int{1, 0, 0}
	holds(t, other.Create(ctx, counter) == nil)
	here, there, err := other.Transfer(ctx, k, 2)
	holds(t, err == nil && here == 3 && there == 2, err)
	_, _, err = other.Transfer(ctx, k, 4)
	is(t, err, ErrNoRights)
	view := must(other.Look(ctx))
	holds(t, view.Value == 3 && *view.Lower == 0 && *view.Upper == 100 && len(view.Rights) == 3 && view.Rights[0].DataCenter != "", view)
}

func Test_counter_rights_move(t *testing.T) {
	session, k := connectTo(t, "us-east").Session(keyspace), key("moved")
	counter := bounds(0, 10)
	counter.Placement = []int{1, 0, 0}
	holds(t, session.Counter(k).Create(ctx, counter) == nil)
	must(session.Counter(k).MoveRights(ctx, "eu", "down", 4))
	there := session.At(connectTo(t, "eu"))
	eventually(t, "the rights", func() bool { value, err := there.Counter(k).Add(ctx, -4); return err == nil && value == 6 })
}

func Test_counter_update_is_made_once(t *testing.T) {
	k, proxy := key("once"), newProxy(t, port("us-east"), "COUNTER\r\n$3\r\nADD", 1)
	session := connect(t, Options{}, atPort(proxy.port)).Session(keyspace)
	holds(t, session.Counter(k).Create(ctx, bounds(0, 10)) == nil)
	holds(t, must(session.Counter(k).Add(ctx, -1)) == 9)
	holds(t, proxy.seen.Load() == 2, proxy.seen.Load())
	holds(t, must(session.Counter(k).Add(ctx, -1)) == 8 && must(session.Counter(k).Look(ctx)).Value == 8)
}

func Test_counter_update_stays_in_its_region(t *testing.T) {
	k, proxy := key("stays"), newProxy(t, port("us-east"), "COUNTER\r\n$3\r\nADD", 1)
	proxy.ends.Store(true)
	session := connect(t, Options{}, atPort(proxy.port), at("eu")).Session(keyspace)
	holds(t, session.Counter(k).Create(ctx, bounds(0, 12)) == nil)
	holds(t, must(session.Wait(ctx, 2, 15*time.Second)) == 2)
	_, err := session.Counter(k).Add(ctx, -1)
	is(t, err, ErrUnreachable)
	var failed *Error
	holds(t, errors.As(err, &failed) && !failed.NothingSent && proxy.seen.Load() == 1, err)
	home := session.At(connectTo(t, "us-east"))
	holds(t, must(home.Counter(k).Look(ctx)).Value == 11)
	must(home.Put(ctx, k+"after", "x", 0))
	holds(t, must(home.At(connectTo(t, "eu")).Counter(k).Look(ctx)).Value == 11)
}

func Test_counter_update_in_doubt_stays_in_doubt(t *testing.T) {
	plain := newBusyRedis(t)
	session := connect(t, Options{}, atPort(plain.port)).Session(keyspace)
	_, err := session.Counter("k").Add(ctx, -1)
	is(t, err, ErrUnreachable)
	var failed *Error
	holds(t, errors.As(err, &failed) && !failed.NothingSent && plain.updates.Load() > 1, err)
	_, err = session.Counter("k").Add(ctx, -1)
	is(t, err, ErrBusy)
}

func Test_write_is_not_sent_twice(t *testing.T) {
	k, proxy := key("twice"), newProxy(t, port("us-east"), "$3\r\nSET\r\n", 1)
	session := connect(t, Options{}, atPort(proxy.port), at("eu")).Session(keyspace)
	must(session.Get(ctx, k))
	_, err := session.Put(ctx, k, "x", 0)
	is(t, err, ErrUnreachable)
	var failed *Error
	holds(t, errors.As(err, &failed) && !failed.NothingSent && proxy.seen.Load() == 1, err, proxy.seen.Load())
	must(session.Get(ctx, k))
}

func Test_failover_to_another_region(t *testing.T) {
	client, k := connect(t, Options{ReturnAfter: 50 * time.Millisecond}, at("us-west"), at("eu")), key("failover")
	session := client.Session(keyspace)
	holds(t, must(session.Put(ctx, k, "from the west", 0)).Origin == "us-west")
	holds(t, must(session.Wait(ctx, 2, 15*time.Second)) == 2)
	tell("us-west", syscall.SIGKILL)
	defer sync.OnceFunc(startAgain)()
	holds(t, string(must(session.Get(ctx, k)).Value) == "from the west")
	holds(t, must(session.Put(ctx, k, "from eu", 0)).Origin == "eu")
	holds(t, string(must(session.Get(ctx, k)).Value) == "from eu")
	startAgain()
	eventually(t, "the way back", func() bool {
		version, err := session.Put(ctx, k, "home", 0)
		return err == nil && version.Origin == "us-west"
	})
	holds(t, string(must(session.Get(ctx, k)).Value) == "home")
}

func Test_lost_idle_connections_are_made_anew(t *testing.T) {
	k, proxy := key("idle"), newProxy(t, port("us-west"), "\xff", 0)
	client := connect(t, Options{}, atPort(proxy.port), at("eu"))
	sessions := make([]*Session, 5)
	var group sync.WaitGroup
	for i := range sessions {
		sessions[i] = client.Session(keyspace)
		group.Add(1)
		go func() { defer group.Done(); must(sessions[i].Put(ctx, k, "before", 0)) }()
	}
	group.Wait()
	for _, session := range sessions {
		proxy.drop()
		holds(t, must(session.Put(ctx, k, "after", 0)).Origin == "us-west")
		proxy.drop()
		holds(t, string(must(session.Get(ctx, k)).Value) == "after")
		holds(t, client.regions[0].avoided.IsZero(), "passed over")
	}
}

func Test_hung_node_is_passed_over(t *testing.T) {
	k, proxy := key("hung"), newProxy(t, port("us-west"), "\xff", 0)
	west := atPort(proxy.port)
	west.ReadTimeout = 2 * time.Second
	session := connect(t, Options{}, west, at("eu")).Session(keyspace)
	holds(t, must(session.Put(ctx, k, "from the west", 0)).Origin == "us-west")
	proxy.hangs.Store(true)
	holds(t, string(must(session.Get(ctx, k)).Value) == "from the west")
	holds(t, must(session.Put(ctx, k, "from eu", 0)).Origin == "eu")
}

func Test_opening_node_is_passed_over(t *testing.T) {
	for _, greets := range []string{"", "AUTH CLIENT"} {
		k, west, eu := key("opening"), newOpeningRedis(t, greets), connectTo(t, "eu").Session(keyspace)
		holds(t, eu.Counter(k+"count").Create(ctx, bounds(0, 12)) == nil)
		must(eu.Put(ctx, k, "there", 0))
		operations := []func(*Session) (bool, error){
			func(session *Session) (bool, error) {
				version, err := session.Put(ctx, k+"put", "x", 0)
				return version.Origin == "eu", err
			},
			func(session *Session) (bool, error) {
				read, err := session.Get(ctx, k)
				return string(read.Value) == "there", err
			},
			func(session *Session) (bool, error) {
				value, err := session.Counter(k+"count").Add(ctx, -1)
				return value < 12, err
			},
		}
		once := Options{ReadRetries: -1}
		for i, operation := range operations {
			session := connect(t, once, atPort(west.port), at("eu")).Session(keyspace)
			done, err := operation(session)
			holds(t, err == nil && done, greets, i, err)
			asked := west.asked.Load()
			done, err = operation(session)
			holds(t, err == nil && done && west.asked.Load() == asked, greets, i, err)
		}
		holds(t, must(Listen(ctx, connect(t, once, atPort(west.port), at("eu")), "")).Close() == nil)
		alone := connect(t, once, atPort(west.port))
		for _, failing := range append(operations, func(*Session) (bool, error) {
			_, err := Listen(ctx, alone, "")
			return false, err
		}) {
			_, err := failing(alone.Session(keyspace))
			is(t, err, ErrUnreachable)
			var failed *Error
			holds(t, errors.As(err, &failed) && failed.NothingSent, err)
			holds(t, strings.Contains(failed.Text, fmt.Sprint(west.port)) && strings.Contains(failed.Text, "opening its data"), err)
		}
		west.mutex.Lock()
		holds(t, !west.commands["SET"], "the write was sent")
		west.mutex.Unlock()
	}
}

func Test_dead_node_is_a_clear_error(t *testing.T) {
	address := unusedPort()
	session := connect(t, Options{ReadRetries: 1}, atPort(address)).Session(keyspace)
	_, put := session.Put(ctx, "k", "x", 0)
	_, get := session.Get(ctx, "k")
	_, add := session.Counter("k").Add(ctx, 1)
	for _, err := range []error{put, get, add} {
		is(t, err, ErrUnreachable)
		var failed *Error
		holds(t, errors.As(err, &failed) && failed.NothingSent && strings.Contains(err.Error(), fmt.Sprint(address)), err)
	}
}

func Test_siblings_are_resolved(t *testing.T) {
	client, k := connectTo(t, "us-east"), key("side")
	one, other := client.Session("quorum"), client.Session("quorum")
	seen := must(one.Siblings(ctx, k)).Context
	must(one.Replace(ctx, k, "milk", seen))
	must(other.Replace(ctx, k, "bread", seen))
	values := must(one.Siblings(ctx, k)).Values
	holds(t, len(values) == 2, values)
	join := func(values [][]byte) []byte { return bytes.Join(values, []byte("+")) }
	resolved := string(must(one.Resolve(ctx, k, join)))
	holds(t, resolved == "bread+milk" || resolved == "milk+bread", resolved)
	values = must(other.Siblings(ctx, k)).Values
	holds(t, len(values) == 1 && string(values[0]) == resolved)
	holds(t, string(must(one.Resolve(ctx, k, func([][]byte) []byte { return nil }))) == resolved)
}

func Test_wrong_password_is_a_clear_error(t *testing.T) {
	options := at("us-east")
	options.Password = "guess"
	_, err := connect(t, Options{}, options).Session(keyspace).Get(ctx, "k")
	is(t, err, ErrUnauthenticated)
	// A right one ends the count of wrong ones.
	must(connectTo(t, "us-east").Session(keyspace).Get(ctx, "k"))
	// A connection that has to show it again, as after a change of users, does so.
	options = at("us-east")
	options.PoolSize = 1
	client := connect(t, Options{}, options)
	forget := func() {
		conn := client.regions[0].rdb.Conn()
		holds(t, conn.Process(ctx, redis.NewCmd(ctx, "RESET")) == nil && conn.Close() == nil)
	}
	forget()
	must(client.Session(keyspace).Put(ctx, key("again"), "x", 0))
	forget()
	must(client.Session(keyspace).Get(ctx, "k"))
}

func Test_pool_without_a_connection_is_busy(t *testing.T) {
	options := at("us-east")
	options.PoolSize, options.PoolTimeout = 1, 100*time.Millisecond
	client := connect(t, Options{}, options)
	session, busy := client.Session(keyspace), client.regions[0].rdb.Conn()
	must(busy.ClientID(ctx).Result())
	_, err := session.Put(ctx, "k", "x", 0)
	is(t, err, ErrBusy)
	holds(t, busy.Close() == nil)
	must(session.Put(ctx, key("busy"), "x", 0))
}

func Test_server_without_rheo_is_a_clear_error(t *testing.T) {
	plain := newPlainRedis(t)
	session := connect(t, Options{}, atPort(plain.port)).Session(keyspace)
	_, put := session.Put(ctx, "k", "x", 0)
	_, get := session.Get(ctx, "k")
	for _, err := range []error{put, get} {
		is(t, err, ErrNotRheostat)
		is(t, err, ErrRefused)
	}
	plain.mutex.Lock()
	defer plain.mutex.Unlock()
	holds(t, !plain.commands["SET"], "the write was sent")
}

func Test_cancelled_operation_leaves_the_pool_clean(t *testing.T) {
	options, k := at("eu"), key("cancel")
	options.PoolSize = 1
	east, eu := connectTo(t, "us-east").Session(keyspace), connect(t, Options{}, options)
	cut(t, eastAlone...)
	must(east.Put(ctx, k, "x", 0))
	waiting, other := eu.Resume(keyspace, east.Token()), eu.Session(keyspace)
	must(other.Put(ctx, k+"2", "mine", 0))
	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := waiting.Get(cancelled, k)
	is(t, err, context.Canceled)
	holds(t, string(must(other.Get(ctx, k+"2")).Value) == "mine" && waiting.Token() == east.Token())
	// A command that was given up is not answered later on: when its connection is free, what was asked there has been.
	again, cancelAgain := context.WithCancel(ctx)
	mine := redis.NewStringCmd(again, "GET", k)
	time.AfterFunc(100*time.Millisecond, cancelAgain)
	is(t, waiting.WithDial(within(5*time.Second)).Process(again, mine), context.Canceled)
	must(other.Get(ctx, k+"2"))
	is(t, mine.Err(), context.Canceled)
	late, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	_, err = waiting.Get(late, k)
	is(t, err, ErrTimeout)
	holds(t, string(must(other.Get(ctx, k+"2")).Value) == "mine")
}

// twoKeys has a predicate watched for that two keys must not be 1 at once; its name, and the keys.
func twoKeys(word string) (name, one, other string) {
	name, one, other = strings.ReplaceAll(key(word), ":", "_"), key(word), key(word)
	watch(name, fmt.Sprintf("!(%s = 1 && %s = 1)", one, other))
	return name, one, other
}

func violate(t *testing.T, one, other string) {
	must(connectTo(t, "us-east").Session("eventual").Put(ctx, one, "1", 0))
	must(connectTo(t, "eu").Session("eventual").Put(ctx, other, "1", 0))
}

func listen(t *testing.T, client *Client, monitor string) *Violations {
	t.Helper()
	violations, err := Listen(ctx, client, monitor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = violations.Close() })
	return violations
}

func until(t *testing.T, violations *Violations, what string, wanted func(Said) bool) Said {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		said, err := violations.Next(bounded)
		if err != nil {
			t.Fatal("never told: ", what, ": ", err)
		}
		if wanted(said) {
			return said
		}
	}
}

func isA[T Said](said Said) bool { _, ok := said.(T); return ok }

func certain(said Said) bool {
	violation, ok := said.(Violation)
	return ok && violation.Certain
}

// nothingWithin waits for violations in vain.
func nothingWithin(t *testing.T, violations *Violations, within time.Duration) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		said, err := violations.Next(bounded)
		if err != nil {
			is(t, err, context.DeadlineExceeded)
			return
		}
		holds(t, isA[Missed](said), said)
	}
}

func Test_violation_is_told_with_its_evidence(t *testing.T) {
	name, one, other := twoKeys("told")
	elsewhere, _, _ := twoKeys("elsewhere")
	violations, others := listen(t, connectTo(t, "eu"), name), listen(t, connectTo(t, "eu"), elsewhere)
	first := must(connectTo(t, "us-east").Session("eventual").Put(ctx, one, "1", 0))
	second := must(connectTo(t, "us-west").Session("eventual").Put(ctx, other, "1", 0))
	told := until(t, violations, "the violation", certain).(Violation)
	holds(t, told.Monitor == name && told.Keyspace == "eventual" && strings.HasSuffix(told.Node, "-1") && told.Number > 0, told)
	holds(t, time.Since(told.At).Abs() < time.Minute && told.NotBefore.Millis < uint64(told.At.UnixMilli()), told)
	holds(t, len(told.Evidence) == 2, told)
	expected := map[string]struct {
		place   string
		version Version
	}{one: {"us-east", first}, other: {"us-west", second}}
	for _, state := range told.Evidence {
		wrote, known := expected[string(state.Key)]
		delete(expected, string(state.Key))
		holds(t, known && string(state.Value) == "1" && state.DataCenter == wrote.place, state)
		holds(t, state.Version != nil && state.Version.Millis == wrote.version.Millis && state.Version.Counter == wrote.version.Counter, state)
		holds(t, told.NotBefore.Millis < state.From.Millis+1000 && state.From.Millis <= uint64(told.At.UnixMilli()), state)
		holds(t, state.Until == nil || state.Until.Millis >= state.From.Millis, state)
	}
	nothingWithin(t, others, 200*time.Millisecond)
}

func Test_alarms_come_again_from_another_region(t *testing.T) {
	name, one, other := twoKeys("again")
	violations := listen(t, connect(t, Options{ReturnAfter: 50 * time.Millisecond}, at("us-west"), at("eu")), name)
	tell("us-west", syscall.SIGKILL)
	defer sync.OnceFunc(startAgain)()
	silence := until(t, violations, "silence", isA[Silence]).(Silence)
	holds(t, strings.Contains(silence.Why, "127.0.0.1"), silence)
	before := violations.Missed()
	until(t, violations, "that it goes on", isA[Missed])
	holds(t, violations.Missed() > before)
	startAgain()
	violate(t, one, other)
	until(t, violations, "the violation", certain)
}

func Test_silent_node_is_passed_over(t *testing.T) {
	name, one, other := twoKeys("silent")
	proxy := newProxy(t, port("us-west"), "\xff", 0)
	west := atPort(proxy.port)
	west.ReadTimeout = 2 * time.Second
	violations := listen(t, connect(t, Options{SilenceAfter: 4 * time.Second}, west, at("eu")), name)
	// It is asked whether it is there, and says so.
	nothingWithin(t, violations, 6400*time.Millisecond)
	proxy.hangs.Store(true)
	until(t, violations, "silence", isA[Silence])
	until(t, violations, "that it goes on", isA[Missed])
	violate(t, one, other)
	until(t, violations, "the violation", certain)
}

func Test_closing_ends_the_wait(t *testing.T) {
	name, _, _ := twoKeys("close")
	rdb := redis.NewClient(at("eu"))
	defer func() { _ = rdb.Close() }()
	connections := func() map[string]bool {
		ids := map[string]bool{}
		for _, line := range strings.Split(must(rdb.ClientList(ctx).Result()), "\n") {
			if id, rest, found := strings.Cut(line, " "); found && rest != "" {
				ids[id] = true
			}
		}
		return ids
	}
	// Clients of other tests have ended theirs, and the node sees it when it sees it.
	before := connections()
	violations := listen(t, connectTo(t, "eu"), name)
	var own []string
	for id := range connections() {
		if !before[id] {
			own = append(own, id)
		}
	}
	holds(t, len(own) == 1, own)
	nothingWithin(t, violations, 200*time.Millisecond)
	time.AfterFunc(200*time.Millisecond, func() { _ = violations.Close() })
	for {
		said, err := violations.Next(ctx)
		if err != nil {
			is(t, err, ErrClosed)
			break
		}
		holds(t, isA[Missed](said), said)
	}
	_, err := violations.Next(ctx)
	is(t, err, ErrClosed)
	holds(t, violations.Close() == nil)
	eventually(t, "one connection less", func() bool { return !connections()[own[0]] })
	// Who begins to listen is given up by the context, and leaves no connection.
	for _, greets := range []bool{false, true} {
		silent := newSilentRedis(t, greets)
		options := atPort(silent.port)
		options.ReadTimeout = time.Hour
		client := connect(t, Options{SilenceAfter: time.Hour}, options)
		begins, giveUp := context.WithCancel(ctx)
		defer giveUp()
		ended := make(chan error, 1)
		go func() {
			_, err := Listen(begins, client, name)
			ended <- err
		}()
		eventually(t, "the question", func() bool { return silent.asked.Load() > 0 })
		giveUp()
		select {
		case err := <-ended:
			is(t, err, context.Canceled)
			is(t, err, ErrUnreachable)
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
		eventually(t, "no connection", func() bool { return silent.there.Load() == 0 })
	}
}

func Test_listening_is_refused_with_a_typed_error(t *testing.T) {
	writer, stranger := at("us-east"), at("us-east")
	writer.Username, writer.Password, stranger.Password = "writer", "only writes", "guess"
	for _, options := range []*redis.Options{writer, stranger} {
		_, err := Listen(ctx, connect(t, Options{}, options), "")
		is(t, err, ErrUnauthenticated)
	}
	// A right one ends the count of wrong ones.
	must(connectTo(t, "us-east").Session(keyspace).Get(ctx, "k"))
	_, err := Listen(ctx, connect(t, Options{}, atPort(newTellingRedis(t, true, 0).port)), "")
	is(t, err, ErrNotRheostat)
	_, err = Listen(ctx, connect(t, Options{}, atPort(newPlainRedis(t).port)), "")
	is(t, err, ErrRefused)
	nobody := unusedPort()
	_, err = Listen(ctx, connect(t, Options{}, atPort(nobody)), "")
	is(t, err, ErrUnreachable)
	var failed *Error
	holds(t, errors.As(err, &failed) && failed.NothingSent && strings.Contains(err.Error(), fmt.Sprint(nobody)), err)
}

func Test_refusal_later_ends_the_subscription(t *testing.T) {
	violations := listen(t, connect(t, Options{SilenceAfter: 4 * time.Second}, atPort(newTellingRedis(t, true, 1).port)), "m")
	holds(t, isA[Violation](must(violations.Next(ctx))))
	silence := until(t, violations, "silence", isA[Silence]).(Silence)
	holds(t, strings.Contains(silence.Why, "Authentication"), silence)
	for range 2 {
		_, err := violations.Next(ctx)
		is(t, err, ErrUnauthenticated)
	}
}

func Test_slow_listener_is_told_what_was_left_out(t *testing.T) {
	violations := listen(t, connect(t, Options{}, atPort(newTellingRedis(t, true, 3000).port)), "m")
	eventually(t, "all have come", func() bool {
		violations.mutex.Lock()
		defer violations.mutex.Unlock()
		return len(violations.queue)+violations.leftOut == 3000
	})
	told, leftOut := 0, 0
	for told+leftOut < 3000 {
		switch said := until(t, violations, "all", func(Said) bool { return true }).(type) {
		case Violation:
			holds(t, said.Number == uint64(told+leftOut), said)
			told++
		case Missed:
			var count int
			must(fmt.Sscanf(said.Why, "this subscriber reads too slowly: %d events were left out", &count))
			leftOut += count
		}
	}
	holds(t, told+leftOut == 3000 && leftOut > 0, told, leftOut)
}
