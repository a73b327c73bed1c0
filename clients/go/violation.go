package rheostat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// What is said and not taken yet.
	waiting = 1024
	// Pauses between two rounds through the regions; each is twice as long as the one before.
	firstPause, longestPause = 200 * time.Millisecond, 5 * time.Second
)

// ErrClosed: the subscription was closed.
var ErrClosed = errors.New("the subscription is closed")

// Said is what a subscription tells: a [Violation], [Missed] or [Silence].
type Said interface{ said() }

// Violation is a violation of a predicate. What was possible and turns out to be certain is told again, under the same node and number.
type Violation struct {
	// Node is the node whose monitor says it, and Number its number there.
	Node   string
	Number uint64
	// At is when it was said.
	At time.Time
	// Keyspace is the keyspace.
	Keyspace string
	// Monitor is the predicate; of a pattern with what stands in its braces, as name[17,4].
	Monitor string
	// Certain says whether there was a moment at which all states stood; otherwise there may have been.
	Certain bool
	// NotBefore is a moment at which these states did not violate it yet.
	NotBefore Moment
	// Evidence is the states that violate it together.
	Evidence []Evidence
}

// Evidence is one of the states that violate a predicate together.
type Evidence struct {
	// Key is the key.
	Key []byte
	// Value is its value, or how it begins; nil if the key was absent.
	Value []byte
	// Version is the value's version; nil if it was never written.
	Version *Version
	// DataCenter is where it stood.
	DataCenter string
	// From is since when, on that server's clock.
	From Moment
	// Until is until when; nil if it stands, as far as is known.
	Until *Moment
}

// Moment is a server's time: milliseconds since the Unix epoch, and a counter within them.
type Moment struct {
	Millis  uint64
	Counter uint32
}

// Missed says that violations may have been missed, and why.
type Missed struct{ Why string }

// Silence says that the connection was lost, and why: from now on nobody tells anything, until [Missed] says that somebody does again.
type Silence struct{ Why string }

func (Violation) said() {}
func (Missed) said()    {}
func (Silence) said()   {}

// Violations is a subscription to what monitors tell, on a connection of its own that the regions' Redis clients have the options for.
//
// Another region is asked when the first cannot be reached. What is not taken by [Violations.Next] waits, up to 1024 messages; those that are left out then are said as [Missed].
// Goroutines may share it.
type Violations struct {
	client  *Client
	monitor string
	ctx     context.Context
	cancel  context.CancelFunc
	ready   chan struct{}

	mutex   sync.Mutex
	wire    *wire
	queue   []Said
	leftOut int
	missed  uint64
	ended   error
}

// Listen subscribes to violations of the predicate monitor, or of all if that is empty, from now on. The context bounds the beginning only: when it ends before that, so does the wait
// for a server. [Violations.Close] ends the subscription.
//
// Errors: [ErrUnauthenticated] if the user may not (it takes the role operate), [ErrNotRheostat] or [ErrRefused] if the server knows no monitors or no RESP3, [ErrBusy] if too many
// listen, [ErrUnreachable] or [ErrTimeout] if no region can be reached, or the context has ended, whose error it is too then.
func Listen(ctx context.Context, client *Client, monitor string) (*Violations, error) {
	v := &Violations{client: client, monitor: monitor, ready: make(chan struct{}, 1)}
	region, made, err := v.subscribe(ctx)
	if err != nil {
		return nil, err
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.wire = made
	go v.run(region, made)
	return v, nil
}

// Next is what is told next. It waits until the context ends, whose error it returns then.
//
// While nobody can be reached the regions are asked again and again. What a server refuses then ends the subscription, and is the error of this; after [Violations.Close] that is
// [ErrClosed].
func (v *Violations) Next(ctx context.Context) (Said, error) {
	for {
		said, err := v.take()
		if said != nil || err != nil {
			return said, err
		}
		select {
		case <-v.ready:
		case <-v.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (v *Violations) take() (Said, error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	var said Said
	switch {
	case len(v.queue) > 0:
		said, v.queue = v.queue[0], v.queue[1:]
		v.wake()
	case v.leftOut > 0:
		said = v.excess()
	case v.ended != nil:
		return nil, v.ended
	}
	if _, missed := said.(Missed); missed {
		v.missed++
	}
	return said, nil
}

// Missed is how often violations may have been missed so far.
func (v *Violations) Missed() uint64 {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.missed
}

// Close ends the subscription, and the wait of whoever waits in [Violations.Next].
func (v *Violations) Close() error {
	v.end(ErrClosed)
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.queue, v.leftOut = nil, 0
	return nil
}

func (v *Violations) end(why error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.ended == nil {
		v.ended = why
	}
	v.cancel()
	if v.wire != nil {
		v.wire.close()
	}
}

func (v *Violations) wake() {
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

func (v *Violations) excess() Said {
	said := Missed{fmt.Sprintf("this subscriber reads too slowly: %d events were left out", v.leftOut)}
	v.leftOut = 0
	return said
}

func (v *Violations) put(said Said) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	switch {
	case v.ended != nil:
		return
	case len(v.queue) >= waiting:
		v.leftOut++
		return
	case v.leftOut > 0:
		v.queue = append(v.queue, v.excess())
	}
	v.queue = append(v.queue, said)
	v.wake()
}

// run hears, and subscribes again, until the subscription ends.
func (v *Violations) run(region *region, made *wire) {
	for {
		err := v.hear(made)
		made.close()
		if v.ctx.Err() != nil {
			return
		}
		if timedOut(err) {
			// Its connections stay, and nobody answers: others are asked first.
			region.avoid(time.Now().Add(v.client.options.ReturnAfter))
		}
		v.put(Silence{fmt.Sprintf("%s: %v", region.name, err)})
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			if region, made, err = v.subscribe(v.ctx); err == nil {
				break
			}
			if v.ctx.Err() != nil {
				return
			}
			if !isPassing(err) {
				v.end(err)
				return
			}
			// So that not all come back at one moment.
			select {
			case <-time.After(pause/2 + rand.N(pause/2)):
			case <-v.ctx.Done():
				return
			}
		}
		if !v.use(made) {
			return
		}
		v.put(Missed{"the node that tells could not be reached for a while"})
	}
}

// use makes a connection the one that Close closes, unless it has been called.
func (v *Violations) use(made *wire) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.ended != nil {
		made.close()
		return false
	}
	v.wire = made
	return true
}

func isPassing(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrBusy)
}

// subscribe listens at the first region that can be reached and has a place.
func (v *Violations) subscribe(ctx context.Context) (*region, *wire, error) {
	passed := map[int]bool{}
	var last error
	for {
		index := v.client.choose(passed)
		if index < 0 {
			return nil, nil, last
		}
		region := v.client.regions[index]
		made, err := open(ctx, region, v.monitor, v.client.options.SilenceAfter)
		if err == nil {
			region.avoid(time.Time{})
			return region, made, nil
		}
		if ctx.Err() != nil {
			return nil, nil, givenUp(ctx, false)
		}
		passed[index] = true
		switch {
		case isReply(err) && !opening(err):
			last = ofReply(err)
			if !isPassing(last) {
				return nil, nil, last
			}
		case timedOut(err) && !unmade(err):
			region.avoid(time.Now().Add(v.client.options.ReturnAfter))
			last = &Error{Kind: ErrTimeout, Text: fmt.Sprintf("%s: %v", region.name, err), cause: err}
		default:
			region.avoid(time.Now().Add(v.client.options.ReturnAfter))
			why := err.Error()
			if opening(err) {
				why = ofReply(err).Text
			}
			last = &Error{Kind: ErrUnreachable, Text: region.name + ": " + why, NothingSent: true, cause: err}
		}
	}
}

// hear tells what comes; why it comes no longer. After half of the time without a word it asks whether somebody is there.
func (v *Violations) hear(made *wire) error {
	asked := false
	for {
		value, err := made.next(v.client.options.SilenceAfter / 2)
		switch {
		case err == errNothing && asked:
			return fmt.Errorf("nothing was heard for %v: %w", v.client.options.SilenceAfter, context.DeadlineExceeded)
		case err == errNothing:
			asked = true
			if err := made.send("PING"); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			asked = false
			if refusal, ok := value.(refusal); ok {
				// Who is refused is told nothing more: its password was changed, or it may not any more.
				return refusal
			}
			if pushed, ok := value.(pushed); ok && len(pushed) == 2 && text(pushed[0]) == "monitor" {
				v.put(ofPush(pushed[1]))
			}
		}
	}
}

// ofPush is what a pushed message says. One that cannot be understood may have been a violation.
func ofPush(reply any) Said {
	said := map[string]any{}
	for _, one := range entries(reply) {
		said[one.name] = one.value
	}
	what := text(said["what"])
	switch what {
	case "gap":
		return Missed{text(said["why"])}
	case "violated", "possible":
	default:
		return Missed{fmt.Sprintf("a message that this client does not understand: %q", what)}
	}
	violation := Violation{Node: text(said["node"]), Keyspace: text(said["keyspace"]), Monitor: text(said["monitor"]), Certain: what == "violated"}
	number, at := number(said["number"]), number(said["at_ms"])
	notBefore, err := moment(text(said["not_before"]))
	if number == nil || at == nil || err != nil {
		return Missed{fmt.Sprintf("a message that this client does not understand: %v", said)}
	}
	violation.Number, violation.At, violation.NotBefore = uint64(*number), time.UnixMilli(*at), notBefore
	for _, state := range slice(said["evidence"]) {
		one, err := evidence(state)
		if err != nil {
			return Missed{fmt.Sprintf("a message that this client does not understand: %v", err)}
		}
		violation.Evidence = append(violation.Evidence, one)
	}
	return violation
}

func evidence(reply any) (Evidence, error) {
	var one Evidence
	for _, said := range entries(reply) {
		var err error
		switch said.name {
		case "key":
			one.Key = bytesOf(said.value)
		case "value":
			one.Value = bytesOf(said.value)
		case "version":
			if said.value != nil {
				var version Version
				version, err = ParseVersion(text(said.value))
				one.Version = &version
			}
		case "data_center":
			one.DataCenter = text(said.value)
		case "from":
			one.From, err = moment(text(said.value))
		case "until":
			if said.value != nil {
				var until Moment
				until, err = moment(text(said.value))
				one.Until = &until
			}
		}
		if err != nil {
			return one, err
		}
	}
	return one, nil
}

func moment(text string) (Moment, error) {
	millis, counter, _ := strings.Cut(text, ".")
	m, err := strconv.ParseUint(millis, 10, 64)
	if err != nil {
		return Moment{}, fmt.Errorf("%q is no moment", text)
	}
	c, err := strconv.ParseUint(counter, 10, 32)
	if err != nil {
		return Moment{}, fmt.Errorf("%q is no moment", text)
	}
	return Moment{m, uint32(c)}, nil
}

// open makes a connection as the region's client does (dialer, TLS, credentials, OnConnect) and listens on it. From then on it is ours: go-redis reads pushes before replies
// only, and takes one for a reply when its buffer ends within the push's name.
func open(ctx context.Context, region *region, monitor string, silenceAfter time.Duration) (*wire, error) {
	own := *region.rdb.Options()
	own.Protocol, own.PoolSize, own.MinIdleConns, own.DialerRetries, own.MaxRetries = 3, 1, 0, 1, -1
	made := &wire{}
	// A read looks at no context: until the connection listens, it is closed when the context ends.
	bounded, end := context.WithCancel(ctx)
	defer end()
	stays := func() bool { return false }
	dial := own.Dialer
	own.Dialer = func(dialing context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(dialing, network, address)
		if err == nil {
			made.connection = connection
			stays = context.AfterFunc(bounded, func() { _ = connection.Close() })
		}
		return connection, err
	}
	rdb := redis.NewClient(&own)
	conn := rdb.Conn()
	made.close = sync.OnceFunc(func() {
		_ = conn.Close()
		_ = rdb.Close()
	})
	if err := conn.Ping(ctx).Err(); err != nil {
		made.close()
		return nil, err
	}
	made.reader, made.patience = bufio.NewReader(made.connection), silenceAfter
	words := []string{"RHEO", "MONITOR", "LISTEN"}
	if monitor != "" {
		words = append(words, monitor)
	}
	err := made.send(words...)
	var reply any
	if err == nil {
		reply, err = made.next(silenceAfter)
	}
	if refusal, ok := reply.(refusal); ok {
		err = refusal
	}
	if err == nil && !stays() {
		err = ctx.Err()
	}
	if err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}
