// Package rheostat carries sessions, levels and bounded counters of Rheostat over go-redis.
//
// A [Client] is made of your *redis.Client of each region. A [Session] is what one user has seen and written; its [Session.Token] goes to other processes and regions.
// Your code keeps its commands: with [Client.Hook] added, a *redis.Client's commands belong to the session of their context ([WithSession]), which [Middleware] sets for web requests.
package rheostat

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say how long a client waits, and how often it tries. The zero value has the defaults.
type Options struct {
	// Deadline is how long an operation may go on beginning new tries. Default 5 s.
	Deadline time.Duration
	// ReadRetries is how often a read is sent again when it fails for a passing reason, and an update of counters also where the first try may have been made: it has a name.
	// Other writes are never sent again. Default 3; less than 0 is never.
	ReadRetries int
	// RetryPause is the first pause between two tries; each further one is twice as long. Default 20 ms.
	RetryPause time.Duration
	// ReturnAfter is for how long a region that could not be reached is passed over. Default 5 s.
	ReturnAfter time.Duration
	// SilenceAfter is after what time a subscription to violations takes the connection for lost when it hears nothing, not even an answer to its question whether somebody is
	// there. Default 10 s.
	SilenceAfter time.Duration
}

func (o Options) filled() Options {
	if o.Deadline == 0 {
		o.Deadline = 5 * time.Second
	}
	if o.ReadRetries == 0 {
		o.ReadRetries = 3
	}
	if o.RetryPause == 0 {
		o.RetryPause = 20 * time.Millisecond
	}
	if o.ReturnAfter == 0 {
		o.ReturnAfter = 5 * time.Second
	}
	if o.SilenceAfter == 0 {
		o.SilenceAfter = 10 * time.Second
	}
	return o
}

// Client has a pool of connections for each region, the nearest first. Goroutines may share it.
type Client struct {
	options Options
	regions []*region
}

type region struct {
	name     string
	database int
	rdb      *redis.Client

	mutex   sync.Mutex
	avoided time.Time
}

// New makes a client of the regions that the given clients lead to, the nearest first. Any node of a region serves every key, so one for each is enough.
//
// Their options are taken over (address, TLS, password, pool size, timeouts); the connections are the new client's own: nothing is sent again behind a session's back,
// contexts bound every wait, and no hook meets itself. [Client.Close] closes them.
func New(options Options, regions ...*redis.Client) (*Client, error) {
	if len(regions) == 0 {
		return nil, refused("no region to connect to")
	}
	client := &Client{options: options.filled()}
	for _, given := range regions {
		own := *given.Options()
		if sharesSession(own.ClientName) {
			return nil, refused("ClientName %q makes all connections of the pool one session; leave it out, and each user has one of their own", own.ClientName)
		}
		own.MaxRetries, own.ContextTimeoutEnabled = -1, true
		// go-redis has made 0 of a timeout that is switched off, and would take that for the default.
		if own.ReadTimeout == 0 {
			own.ReadTimeout = -1
		}
		if own.WriteTimeout == 0 {
			own.WriteTimeout = -1
		}
		// The server tells nothing of maintenance, and what listens to it belongs to the given client.
		own.PushNotificationProcessor, own.MaintNotificationsConfig = nil, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		client.regions = append(client.regions, &region{name: own.Addr, database: own.DB, rdb: redis.NewClient(&own)})
	}
	return client, nil
}

func sharesSession(name string) bool {
	return strings.HasPrefix(name, "rheo:") && strings.Contains(name, "session=")
}

// Close closes the client's connections.
func (c *Client) Close() error {
	var first error
	for _, region := range c.regions {
		if err := region.rdb.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Session is a new session in keyspace (name or number).
func (c *Client) Session(keyspace string) *Session { return c.Resume(keyspace, "") }

// Resume is the session in keyspace that token stands for. A token that does not belong here is refused by the first operation.
func (c *Client) Resume(keyspace, token string) *Session {
	return &Session{client: c, keyspace: keyspace, state: newState(token)}
}

// choose gives the first region that is not passed over, else the first of those that are and have not been tried now; -1 if there is none.
func (c *Client) choose(passed map[int]bool) int {
	now, left := time.Now(), -1
	for i, region := range c.regions {
		if passed[i] {
			continue
		}
		region.mutex.Lock()
		good := region.avoided.Before(now)
		region.mutex.Unlock()
		if good {
			return i
		}
		if left < 0 {
			left = i
		}
	}
	return left
}

// conn is a connection of the pool on which replies may take so much longer than others.
func (r *region) conn(longer time.Duration) *redis.Conn {
	usual := r.rdb.Options().ReadTimeout
	if longer <= 0 || usual <= 0 {
		return r.rdb.Conn()
	}
	return r.rdb.WithTimeout(usual + longer).Conn()
}

// waits is for how long commands ask the server to wait before it answers.
func waits(cmds []redis.Cmder) time.Duration {
	var all time.Duration
	for _, cmd := range cmds {
		args := cmd.Args()
		if first, _ := firstTwo(args); first != "WAIT" || len(args) != 3 {
			continue
		}
		// What is no number is 0, and what is too large the largest.
		milliseconds, _ := strconv.ParseUint(fmt.Sprint(args[2]), 10, 32)
		all += time.Duration(milliseconds) * time.Millisecond
	}
	return all
}

func (r *region) avoid(until time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.avoided = until
}

type sessionKey struct{}

// WithSession is a context whose commands belong to a session, on clients that [Client.Hook] was added to.
func WithSession(ctx context.Context, session *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

// FromContext is the session that [WithSession] or the middleware has set; nil if there is none.
func FromContext(ctx context.Context) *Session {
	session, _ := ctx.Value(sessionKey{}).(*Session)
	return session
}

// Hook is for the AddHook of your own *redis.Client: commands and pipelines whose context has a session belong to it, and go where its client sends them.
// Those without one are as they were.
func (c *Client) Hook() redis.Hook { return hook{} }

type hook struct{}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		session := FromContext(ctx)
		if session == nil {
			return next(ctx, cmd)
		}
		return session.Process(ctx, cmd)
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		session := FromContext(ctx)
		if session == nil {
			return next(ctx, cmds)
		}
		return session.ProcessPipeline(ctx, cmds)
	}
}
