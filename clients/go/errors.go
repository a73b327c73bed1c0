package rheostat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Why an operation failed, for [errors.Is].
var (
	// ErrRefused: the request is malformed, or the keyspace does not serve it. Nothing was changed.
	ErrRefused = errors.New("refused")
	// ErrNotRheostat: the server does not know RHEO; it is a Redis, not a Rheostat. Such an error is ErrRefused too.
	ErrNotRheostat = errors.New("not a Rheostat")
	// ErrToken: the session's token is damaged or forged, does not belong to this cluster or keyspace, or was signed too long ago. Nothing was changed.
	ErrToken = errors.New("session refused")
	// ErrUnauthenticated: the password is missing or wrong, or the user may not do this. Nothing was changed.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrBusy: the server has too much to do, or the pool has no connection left. Nothing was changed.
	ErrBusy = errors.New("busy")
	// ErrTimeout: the deadline passed. A write may have happened.
	ErrTimeout = errors.New("timeout")
	// ErrUnreachable: no region can be reached, or the connection was lost. A write may have happened, unless [Error.NothingSent].
	ErrUnreachable = errors.New("unreachable")
	// ErrServer: the server's store failed, or it answered something that this client does not understand. A write may have happened.
	ErrServer = errors.New("server error")
	// ErrNoRights: a counter would leave its bounds, with the rights that the update could use; see [NoRights]. Nothing was changed.
	ErrNoRights = errors.New("no rights")
)

// Error is what every operation of this package fails with.
type Error struct {
	// Kind is one of the errors above.
	Kind error
	// Text is what the server or the connection said.
	Text string
	// NothingSent says that it is certain that nothing was changed, where Kind is ErrUnreachable.
	NothingSent bool
	cause       error
}

func (e *Error) Error() string { return e.Kind.Error() + ": " + e.Text }

// Unwrap gives the kind, and what go-redis said.
func (e *Error) Unwrap() []error {
	kinds := []error{e.Kind}
	if e.Kind == ErrNotRheostat {
		kinds = append(kinds, ErrRefused)
	}
	if e.cause != nil {
		kinds = append(kinds, e.cause)
	}
	return kinds
}

// NoRights says which rights a counter's update lacked, for [errors.As].
type NoRights struct {
	// Key is the counter.
	Key string
	// Value is its value as known in the data center that answered.
	Value int64
	// Direction says which rights are missing: "down" or "up".
	Direction string
	// Needed, Here and Elsewhere are how many rights are needed, how many that data center has, and how many the others have as known there.
	Needed, Here, Elsewhere uint64
	text                    string
}

func (e *NoRights) Error() string { return e.text }

var rights = regexp.MustCompile(`(?s)counter (.*) is at (-?\d+) and needs (\d+) rights to (decrement|increment); here are (\d+), elsewhere (\d+)`)

func refused(format string, args ...any) *Error {
	return &Error{Kind: ErrRefused, Text: fmt.Sprintf(format, args...), NothingSent: true}
}

// isReply says whether an error is a server's reply. An absent value is one to go-redis, and none here.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
}

// ofReply is an error reply as one of ours.
func ofReply(err error) *Error {
	text := err.Error()
	if reply := redis.Error(nil); errors.As(err, &reply) {
		text = reply.Error()
	}
	code, rest, _ := strings.Cut(text, " ")
	made := &Error{Text: rest, cause: err}
	switch code {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		made.Kind = ErrUnauthenticated
	case "SESSION":
		made.Kind = ErrToken
	case "BUSY":
		made.Kind = ErrBusy
	case "TIMEOUT", "NOREPLICAS":
		made.Kind = ErrTimeout
	case "CLUSTERDOWN":
		made.Kind = ErrUnreachable
	case "LOADING":
		made.Kind, made.NothingSent = ErrUnreachable, true
	case "NORIGHTS":
		made.Kind = ErrNoRights
		lack := &NoRights{text: rest}
		if found := rights.FindStringSubmatch(rest); found != nil {
			lack.Key, lack.Direction = found[1], "up"
			if found[4] == "decrement" {
				lack.Direction = "down"
			}
			lack.Value, _ = strconv.ParseInt(found[2], 10, 64)
			for i, to := range map[int]*uint64{3: &lack.Needed, 5: &lack.Here, 6: &lack.Elsewhere} {
				*to, _ = strconv.ParseUint(found[i], 10, 64)
			}
		}
		made.cause = lack
	case "ERR", "CROSSSLOT", "EXECABORT", "NOPROTO", "WRONGTYPE":
		made.Kind = ErrRefused
		if lower := strings.ToLower(rest); strings.HasPrefix(lower, "unknown command 'rheo'") || strings.HasPrefix(lower, "unknown command `rheo`") {
			made.Kind, made.Text = ErrNotRheostat, "the server does not know RHEO, so it is no Rheostat: "+rest
		}
	default:
		made.Kind, made.Text = ErrServer, text
	}
	return made
}

// opening says whether this is the answer of a node that opens its data after a restart. Such a node does nothing: it is as if no connection to it could be made.
func opening(err error) bool { return redis.IsLoadingError(err) }

// timedOut says whether a connection's error is that nothing came in time.
func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// unmade says whether no connection could be made, so that nothing was sent.
func unmade(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}
