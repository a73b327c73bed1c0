package rheostat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Session is what one user has seen and written in one keyspace, and the operations on it. One operation goes on at a time: goroutines that share a session wait for each other.
//
// An operation that fails or is given up leaves the token as it was: what it may have written is then not part of the session. Errors are [*Error].
type Session struct {
	client   *Client
	keyspace string
	state    *state

	mutex sync.Mutex
	dial  Dial
}

// state is what the views of one session share.
type state struct {
	turn chan struct{}

	mutex   sync.Mutex
	token   string
	quality Quality

	// Of updates of counters; only who has the turn touches them.
	name   uint64
	number uint64
}

func newState(token string) *state {
	return &state{turn: make(chan struct{}, 1), token: token, name: randomName()}
}

func randomName() uint64 {
	var bytes [8]byte
	// It never fails.
	_, _ = rand.Read(bytes[:])
	return binary.LittleEndian.Uint64(bytes[:]) >> 1
}

// Keyspace is the keyspace's name or number.
func (s *Session) Keyspace() string { return s.keyspace }

// Token is the session's token; empty before its first operation.
func (s *Session) Token() string {
	s.state.mutex.Lock()
	defer s.state.mutex.Unlock()
	return s.state.token
}

// Quality is how good the session's last answer was.
func (s *Session) Quality() Quality {
	s.state.mutex.Lock()
	defer s.state.mutex.Unlock()
	return s.state.quality
}

// SetHeader puts the session into a web request to another service, or into an answer.
func (s *Session) SetHeader(header http.Header) {
	if token := s.Token(); token != "" {
		header.Set(SessionHeader, token)
	}
}

// At is a session that has seen the same, at another client: of other regions, or of these in another order. From now on they are two.
func (s *Session) At(client *Client) *Session {
	return &Session{client: client, keyspace: s.keyspace, state: newState(s.Token()), dial: s.Dial()}
}

// Dial is what operations ask for beside.
func (s *Session) Dial() Dial {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.dial
}

// WithDial is this same session, asking for something else: session.WithDial(rheostat.Dial{Level: "eventual"}).Get(ctx, key).
func (s *Session) WithDial(dial Dial) *Session {
	return &Session{client: s.client, keyspace: s.keyspace, state: s.state, dial: dial}
}

// SetDial sets what operations ask for beside.
func (s *Session) SetDial(dial Dial) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.dial = dial
}

// SetLevel sets the level that operations ask for; empty is the keyspace's own.
func (s *Session) SetLevel(level string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.dial.Level = level
}

// SetServiceLevel sets the service level that reads are served under: a name, or entries from best to least; "none" is none at all.
func (s *Session) SetServiceLevel(serviceLevel string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.dial.ServiceLevel = serviceLevel
}

// Check sees that the servers take this session's token and what it asks for.
func (s *Session) Check(ctx context.Context) error {
	_, err := s.perform(ctx, nil, false, false)
	return err
}

// Merge takes in what the session of token has seen and written: from now on this session sees at least that.
func (s *Session) Merge(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	_, _, err := s.one(ctx, false, "RHEO", "SESSION", "MERGE", token)
	return err
}

// Get is the value of key.
func (s *Session) Get(ctx context.Context, key string) (Read, error) {
	reply, quality, err := s.one(ctx, false, "GET", key)
	if err != nil {
		return Read{}, err
	}
	return Read{bytesOf(reply), quality}, nil
}

// Put writes value to key, for a time, or for ever if it is 0. Never sent twice.
func (s *Session) Put(ctx context.Context, key, value string, expiresAfter time.Duration) (Version, error) {
	_, quality, err := s.one(ctx, true, append([]any{"SET", key, value}, expiry(expiresAfter)...)...)
	return written(quality, err)
}

// PutIf writes if the key is as condition says, in a keyspace that decides such writes; nil where it is not.
func (s *Session) PutIf(ctx context.Context, key, value string, condition Condition, expiresAfter time.Duration) (*Version, error) {
	args := []any{"SET", key, value, condition.kind}
	if condition.kind == "CAS" {
		args = []any{"RHEO", "CAS", key, condition.expected, value}
	}
	reply, quality, err := s.one(ctx, true, append(args, expiry(expiresAfter)...)...)
	if err != nil || reply == nil || reply == int64(0) {
		return nil, err
	}
	version, err := written(quality, nil)
	return &version, err
}

// PutMany writes several keys of one partition, which appear together in every data center.
func (s *Session) PutMany(ctx context.Context, pairs ...Pair) (Version, error) {
	if len(pairs) == 0 {
		return Version{}, refused("nothing to write")
	}
	args := []any{"MSET"}
	for _, pair := range pairs {
		args = append(args, pair.Key, pair.Value)
	}
	_, quality, err := s.one(ctx, true, args...)
	return written(quality, err)
}

// Delete deletes key, and says whether it was there.
func (s *Session) Delete(ctx context.Context, key string) (bool, error) {
	reply, _, err := s.one(ctx, true, "DEL", key)
	return reply == int64(1), err
}

// ReadTransaction gives the values of keys, of any partitions, from one snapshot.
func (s *Session) ReadTransaction(ctx context.Context, keys ...string) (Many, error) {
	if len(keys) == 0 {
		return Many{}, refused("a transaction of no keys")
	}
	args := []any{"MGET"}
	for _, key := range keys {
		args = append(args, key)
	}
	reply, quality, err := s.one(ctx, false, args...)
	if err != nil {
		return Many{}, err
	}
	many := Many{Quality: quality}
	for _, value := range slice(reply) {
		many.Values = append(many.Values, bytesOf(value))
	}
	return many, nil
}

// Wait waits until so many other data centers have this session's writes on disk, for at most timeout, and says how many have.
func (s *Session) Wait(ctx context.Context, dataCenters int, timeout time.Duration) (int, error) {
	reply, _, err := s.one(ctx, false, "WAIT", dataCenters, milliseconds(timeout))
	count, _ := reply.(int64)
	return int(count), err
}

// Siblings gives all values of key that stand side by side; in keyspaces of protocol quorum.
func (s *Session) Siblings(ctx context.Context, key string) (Siblings, error) {
	reply, _, err := s.one(ctx, false, "RHEO", "SIBLINGS", key)
	if err != nil {
		return Siblings{}, err
	}
	parts := slice(reply)
	if len(parts) != 2 {
		return Siblings{}, &Error{Kind: ErrServer, Text: fmt.Sprint("siblings: ", reply)}
	}
	siblings := Siblings{Context: text(parts[0])}
	for _, value := range slice(parts[1]) {
		if value != nil {
			siblings.Values = append(siblings.Values, bytesOf(value))
		}
	}
	return siblings, nil
}

// Replace writes in the place of the values that seen says, and of no others, and gives the new context.
func (s *Session) Replace(ctx context.Context, key, value, seen string) (string, error) {
	reply, _, err := s.one(ctx, true, "RHEO", "PUT", key, value, "CONTEXT", seen)
	return text(reply), err
}

// Resolve is the value of key. Where several stand side by side, resolve makes one of them, which is written in their place.
func (s *Session) Resolve(ctx context.Context, key string, resolve func(values [][]byte) []byte) ([]byte, error) {
	seen, err := s.Siblings(ctx, key)
	if err != nil || len(seen.Values) == 0 {
		return nil, err
	}
	if len(seen.Values) == 1 {
		return seen.Values[0], nil
	}
	value := resolve(seen.Values)
	_, err = s.Replace(ctx, key, string(value), seen.Context)
	return value, err
}

// Process runs a command of go-redis in the session; its reply and its error are the command's, too.
func (s *Session) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := fits(cmd.Args()); err != nil {
		cmd.SetErr(err)
		return err
	}
	if _, err := s.perform(ctx, []redis.Cmder{cmd}, !isRead(cmd.Args()), false); err != nil {
		cmd.SetErr(err)
		return err
	}
	return cmd.Err()
}

// Pipelined runs the commands that fill queues in the session, together; as go-redis does, it returns the first error.
func (s *Session) Pipelined(ctx context.Context, fill func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	queue := s.client.regions[0].rdb.Pipeline()
	if err := fill(queue); err != nil {
		return nil, err
	}
	cmds := queued(queue)
	return cmds, s.ProcessPipeline(ctx, cmds)
}

// queued gives what is in a pipeline, which is not run.
func queued(queue redis.Pipeliner) []redis.Cmder {
	cmds := queue.Cmds()
	copied := append([]redis.Cmder(nil), cmds...)
	queue.Discard()
	return copied
}

// ProcessPipeline runs commands of go-redis in the session, together: with MULTI first and EXEC last as one step. It returns the first error.
func (s *Session) ProcessPipeline(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 0 {
		return nil
	}
	// One that was not begun and ended by go-redis is refused as any command about a connection is.
	transaction := len(cmds) > 1 && strings.EqualFold(cmds[0].Name(), "multi") && strings.EqualFold(cmds[len(cmds)-1].Name(), "exec")
	inner := cmds
	if transaction {
		inner = cmds[1 : len(cmds)-1]
	}
	writes := transaction
	for _, cmd := range inner {
		if err := fits(cmd.Args()); err != nil {
			for _, other := range cmds {
				other.SetErr(err)
			}
			return err
		}
		writes = writes || !isRead(cmd.Args())
	}
	run := s.perform
	if transaction {
		run = s.performTransaction
	}
	if _, err := run(ctx, inner, writes, false); err != nil {
		for _, cmd := range cmds {
			if cmd.Err() == nil {
				cmd.SetErr(err)
			}
		}
		return err
	}
	for _, cmd := range inner {
		if err := cmd.Err(); err != nil {
			if isReply(err) {
				cmd.SetErr(ofReply(err))
			}
		}
	}
	for _, cmd := range inner {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// one runs a single command.
func (s *Session) one(ctx context.Context, writes bool, args ...any) (any, Quality, error) {
	cmd := redis.NewCmd(ctx, args...)
	quality, err := s.perform(ctx, []redis.Cmder{cmd}, writes, false)
	if err != nil {
		return nil, quality, err
	}
	return cmd.Val(), quality, nil
}

func (s *Session) perform(ctx context.Context, cmds []redis.Cmder, writes, named bool) (Quality, error) {
	return s.try(ctx, cmds, writes, named, false)
}

func (s *Session) performTransaction(ctx context.Context, cmds []redis.Cmder, writes, named bool) (Quality, error) {
	return s.try(ctx, cmds, writes, named, true)
}

// tries counts how often and how long an operation is tried.
type tries struct {
	left  int
	pause time.Duration
	until time.Time
}

// again pauses before the next try; false if there is none.
func (t *tries) again(ctx context.Context) bool {
	if t.left <= 0 || time.Now().Add(t.pause).After(t.until) {
		return false
	}
	t.left--
	pause := time.NewTimer(t.pause)
	defer pause.Stop()
	t.pause *= 2
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
		return true
	}
}

// try has commands done. A single one that is answered with an error returns it, and so does what makes none of them be done.
//
// What writes is sent when the server has said that it took session and level; so where it did not, nothing was changed. Reads go along with them.
func (s *Session) try(ctx context.Context, cmds []redis.Cmder, writes, named, transaction bool) (Quality, error) {
	select {
	case s.state.turn <- struct{}{}:
		defer func() { <-s.state.turn }()
	case <-ctx.Done():
		return Quality{}, givenUp(ctx, false)
	}
	if named {
		s.state.number++
		args := cmds[0].Args()
		args[len(args)-2], args[len(args)-1] = s.state.name, s.state.number
	}
	client := s.client
	left := tries{client.options.ReadRetries, client.options.RetryPause, time.Now().Add(client.options.Deadline)}
	passed, renewed, doneAt := map[int]bool{}, map[int]bool{}, -1
	// The error of a named update's last try that may have made it.
	var doubt *Error
	at := client.choose(passed)
	for {
		sent, quality, err := s.attempt(ctx, at, cmds, writes, transaction)
		if err == nil && len(cmds) == 1 && isReply(cmds[0].Err()) {
			err = ofReply(cmds[0].Err())
		}
		var failed *Error
		nobody := unmade(err) || !sent && opening(err)
		switch {
		case err == nil:
			return quality, nil
		case errors.As(err, &failed) && !nobody:
			// The server's word.
			passing := failed.Kind == ErrBusy || failed.Kind == ErrUnreachable
			uncertain := failed.Kind == ErrUnreachable || failed.Kind == ErrTimeout
			if named && sent && uncertain {
				doneAt, doubt = at, failed
			}
			if !(passing && !writes || named && (passing || uncertain)) || !left.again(ctx) {
				return quality, s.ended(failed, doubt)
			}
		case ctx.Err() != nil:
			failed = givenUp(ctx, writes && (sent || doneAt >= 0))
			if named {
				doubt = failed
			}
			return quality, s.ended(failed, doubt)
		default:
			why := err.Error()
			if failed != nil {
				why = failed.Text
			}
			failed = &Error{Kind: ErrUnreachable, Text: client.regions[at].name + ": " + why, NothingSent: doneAt < 0 && !(sent && writes), cause: err}
			switch {
			case nobody:
				client.regions[at].avoid(time.Now().Add(client.options.ReturnAfter))
				passed[at] = true
				if next := client.choose(passed); next >= 0 && doneAt < 0 {
					at = next
					continue
				}
				passed = map[int]bool{}
			case errors.Is(err, redis.ErrPoolTimeout):
				failed.Kind = ErrBusy
				return quality, s.ended(failed, doubt)
			case sent && writes:
				if timedOut(err) {
					failed.Kind = ErrTimeout
				}
				if !named {
					return quality, failed
				}
				doneAt, doubt = at, failed
			case !renewed[at] && !timedOut(err):
				// A connection of the pool may have been lost long ago, with its node; the next one is made anew.
				renewed[at] = true
				continue
			default:
				if timedOut(err) {
					failed.Kind = ErrTimeout
				}
				if doneAt < 0 {
					client.regions[at].avoid(time.Now().Add(client.options.ReturnAfter))
				}
			}
			if !left.again(ctx) {
				return quality, s.ended(failed, doubt)
			}
		}
		if doneAt < 0 {
			at = max(0, client.choose(passed))
		}
	}
}

// ended is an operation's error. Where a named update may have been made, those that follow have another client's name, since only one of a client may be under way.
func (s *Session) ended(failed, doubt *Error) error {
	if doubt == nil {
		return failed
	}
	s.state.name, s.state.number = randomName(), 0
	switch failed.Kind {
	case ErrTimeout, ErrUnreachable, ErrServer, ErrNoRights:
		return failed
	}
	// The last try says only that it has changed nothing itself.
	return doubt
}

func givenUp(ctx context.Context, may bool) *Error {
	kind := ErrUnreachable
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = ErrTimeout
	}
	return &Error{Kind: kind, Text: "given up: " + ctx.Err().Error(), NothingSent: !may, cause: ctx.Err()}
}

// attempt tries once, at one region. `sent` says whether the commands may have been sent. An error that is no [*Error] is the connection's.
func (s *Session) attempt(ctx context.Context, at int, cmds []redis.Cmder, writes, transaction bool) (sent bool, quality Quality, err error) {
	region := s.client.regions[at]
	before, after := s.around(ctx, region)
	theirs := cmds
	if ctx.Done() != nil {
		// Those of who is given up stay as they are, whatever is answered yet.
		cmds = copied(cmds)
	}
	type outcome struct {
		sent    bool
		quality Quality
		token   string
		err     error
	}
	work := func() (made outcome) {
		conn := region.conn(waits(cmds) + s.Dial().bound(len(cmds)))
		defer func() { _ = conn.Close() }()
		ready := func() error {
			var wrong error
			for _, cmd := range before {
				if failure := cmd.Err(); isReply(failure) && (wrong == nil || errors.Is(ofReply(failure), ErrNotRheostat)) {
					wrong = ofReply(failure)
				}
			}
			return wrong
		}
		// begin sends what makes the connection the session's, and what goes along. One that has to show its password again, as after a change of users, does so.
		begin := func(cmds []redis.Cmder) error {
			err := talk(ctx, conn, cmds)
			if failure := before[0].Err(); err == nil && isReply(failure) && strings.HasPrefix(failure.Error(), "NOAUTH ") && logIn(ctx, conn, region.rdb.Options()) {
				err = talk(ctx, conn, cmds)
			}
			return err
		}
		told := []redis.Cmder{redis.NewCmd(ctx, "RHEO", "QUALITY"), redis.NewCmd(ctx, "RHEO", "SESSION", "GET")}
		tail := append(told[:2:2], after...)
		if writes {
			if made.err = begin(before); made.err != nil {
				return made
			}
			if wrong := ready(); wrong != nil {
				_ = talk(ctx, conn, after)
				made.err = wrong
				return made
			}
			if made.err = ctx.Err(); made.err != nil {
				_ = talk(context.WithoutCancel(ctx), conn, after)
				return made
			}
			made.sent = true
			if transaction {
				_, failure := conn.TxPipelined(ctx, func(queue redis.Pipeliner) error {
					for _, cmd := range cmds {
						_ = queue.Process(ctx, cmd)
					}
					return nil
				})
				switch {
				case isReply(failure):
					_ = talk(ctx, conn, after)
					made.err = ofReply(failure)
				case failure != nil && !errors.Is(failure, redis.Nil):
					made.err = failure
				default:
					made.err = talk(ctx, conn, tail)
				}
			} else {
				made.err = talk(ctx, conn, append(cmds[:len(cmds):len(cmds)], tail...))
			}
		} else {
			all := append(before[:len(before):len(before)], cmds...)
			if made.err = begin(append(all, tail...)); made.err == nil {
				made.err = ready()
			}
		}
		if made.err != nil {
			return made
		}
		for _, cmd := range tail {
			if failure := cmd.Err(); isReply(failure) {
				made.err = &Error{Kind: ErrServer, Text: "the session could not be told from the connection: " + failure.Error(), cause: failure}
				return made
			}
		}
		made.token = text(told[1].(*redis.Cmd).Val())
		made.quality, made.err = qualityOf(told[0].(*redis.Cmd).Val())
		return made
	}
	// go-redis does not look at a context that is cancelled in the middle: who is given up goes on to the end, apart, so that the connection is left as it was.
	done := make(chan outcome, 1)
	if ctx.Done() == nil {
		done <- work()
	} else {
		go func() { done <- work() }()
	}
	select {
	case made := <-done:
		takeReplies(theirs, cmds)
		if made.err == nil {
			region.avoid(time.Time{})
			s.state.mutex.Lock()
			defer s.state.mutex.Unlock()
			s.state.token, s.state.quality = made.token, made.quality
		}
		return made.sent, made.quality, made.err
	case <-ctx.Done():
		return writes, Quality{}, ctx.Err()
	}
}

// logIn shows the password that is known now. A provider that streams them has go-redis do that by itself.
func logIn(ctx context.Context, conn *redis.Conn, options *redis.Options) bool {
	username, password := options.Username, options.Password
	switch {
	case options.StreamingCredentialsProvider != nil:
		return false
	case options.CredentialsProviderContext != nil:
		var err error
		if username, password, err = options.CredentialsProviderContext(ctx); err != nil {
			return false
		}
	case options.CredentialsProvider != nil:
		username, password = options.CredentialsProvider()
	}
	switch {
	case password == "":
		return false
	case username == "":
		return conn.Auth(ctx, password).Err() == nil
	}
	return conn.AuthACL(ctx, username, password).Err() == nil
}

// around is what makes a connection the session's, and what makes it nobody's.
func (s *Session) around(ctx context.Context, region *region) (before, after []redis.Cmder) {
	begin, end := s.Dial().around()
	command := func(args ...any) redis.Cmder { return redis.NewCmd(ctx, args...) }
	if s.keyspace != "" {
		before = append(before, command("SELECT", s.keyspace))
	}
	if token := s.Token(); token != "" {
		before = append(before, command("RHEO", "SESSION", "RESUME", token))
	} else {
		before = append(before, command("RHEO", "SESSION", "RESET"))
	}
	for _, args := range begin {
		before = append(before, command(args...))
	}
	for _, args := range end {
		after = append(after, command(args...))
	}
	after = append(after, command("RHEO", "SESSION", "RESET"))
	if s.keyspace != "" {
		after = append(after, command("SELECT", region.database))
	}
	return before, after
}

// talk sends commands together. Errors are the connection's; those of commands stand in them.
func talk(ctx context.Context, conn *redis.Conn, cmds []redis.Cmder) error {
	pipe := conn.Pipeline()
	for _, cmd := range cmds {
		cmd.SetErr(nil)
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) && !isReply(err) {
		return err
	}
	told := false
	for _, cmd := range cmds {
		failure := cmd.Err()
		if failure != nil && !errors.Is(failure, redis.Nil) && !isReply(failure) {
			return failure
		}
		told = told || failure != nil
	}
	if err != nil && !told {
		// The reply was to what go-redis says on a new connection, as to a password.
		return ofReply(err)
	}
	return nil
}

func expiry(after time.Duration) []any {
	if after == 0 {
		return nil
	}
	return []any{"PX", milliseconds(after)}
}

func written(quality Quality, err error) (Version, error) {
	switch {
	case err != nil:
		return Version{}, err
	case quality.Version == nil:
		return Version{}, &Error{Kind: ErrServer, Text: "the answer does not say which version was written"}
	}
	return *quality.Version, nil
}

// reads are commands that write nothing; a session sends them along with its token, in one round trip.
var reads = words("GET MGET STRLEN EXISTS TTL PTTL EXPIRETIME PEXPIRETIME TYPE SCAN DBSIZE TOUCH PING ECHO TIME WAIT COMMAND INFO CLUSTER CLIENT READONLY")

// notInASession is what the connection of a session keeps for itself, and of RHEO likewise.
var (
	notInASession = words("AUTH HELLO SELECT RESET QUIT MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE PSUBSCRIBE MONITOR")
	dials         = words("LEVEL STRATEGY FRESH WITHIN AT SLA QUORUM GROUPS SCOPE VIEW SESSION RECEIPT MONITOR")
	readsOfRheo   = words("EXPLAIN SIBLINGS STATUS")
)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}

func firstTwo(args []any) (string, string) {
	var first, second string
	if len(args) > 0 {
		first = strings.ToUpper(fmt.Sprint(args[0]))
	}
	if len(args) > 1 {
		second = strings.ToUpper(fmt.Sprint(args[1]))
	}
	return first, second
}

func isRead(args []any) bool {
	first, second := firstTwo(args)
	return reads[first] || first == "RHEO" && readsOfRheo[second] || first == "MEMORY" && second == "USAGE"
}

// fits refuses what would change the connection rather than be part of the session.
func fits(args []any) error {
	first, second := firstTwo(args)
	if notInASession[first] || first == "RHEO" && dials[second] || first == "CLIENT" && second == "SETNAME" {
		return refused("%s %s is about a connection, and a session has none of its own: use the session's methods", first, second)
	}
	return nil
}
