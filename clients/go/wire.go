package rheostat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// What a server may send at once, where this client reads itself; a server's message of an alarm has some kilobytes.
const (
	longestText = 64 << 20
	mostItems   = 1 << 20
	deepest     = 16
)

// errNothing: nothing has come in time, and nothing was taken from the connection.
var errNothing = errors.New("nothing has come in time")

// pushed is a message that came without being asked for.
type pushed []any

// refusal is an error reply.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it one of go-redis' own.
func (r refusal) RedisError() {}

// wire is a connection on which messages are pushed (RESP3).
type wire struct {
	connection net.Conn
	reader     *bufio.Reader
	// How long the rest of a message may take that has begun, and the sending of a command.
	patience time.Duration
	close    func()
}

func (w *wire) send(words ...string) error {
	var packet strings.Builder
	fmt.Fprintf(&packet, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&packet, "$%d\r\n%s\r\n", len(word), word)
	}
	if err := w.connection.SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
		return err
	}
	_, err := io.WriteString(w.connection, packet.String())
	return err
}

// next is the next message or reply; errNothing if none begins in time.
func (w *wire) next(within time.Duration) (any, error) {
	if w.reader.Buffered() == 0 {
		if err := w.connection.SetReadDeadline(time.Now().Add(within)); err != nil {
			return nil, err
		}
		if _, err := w.reader.Peek(1); timedOut(err) {
			return nil, errNothing
		} else if err != nil {
			return nil, err
		}
	}
	if err := w.connection.SetReadDeadline(time.Now().Add(w.patience)); err != nil {
		return nil, err
	}
	return w.value(0)
}

func (w *wire) value(depth int) (any, error) {
	line, err := w.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" || depth > deepest {
		return nil, fmt.Errorf("%q is not RESP", line)
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ',', '(':
		return rest, nil
	case '#':
		return rest == "t", nil
	case '-':
		return refusal(rest), nil
	case '_':
		return nil, nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '=', '!':
		length, err := strconv.Atoi(rest)
		if err != nil || length > longestText {
			return nil, fmt.Errorf("%q is not a text's length", line)
		}
		if length < 0 {
			return nil, nil
		}
		bytes := make([]byte, length+2)
		if _, err := io.ReadFull(w.reader, bytes); err != nil {
			return nil, err
		}
		if kind == '!' {
			return refusal(bytes[:length]), nil
		}
		return string(bytes[:length]), nil
	case '*', '~', '>', '%':
		count, err := strconv.Atoi(rest)
		if err != nil || count > mostItems {
			return nil, fmt.Errorf("%q is not a number of items", line)
		}
		if count < 0 {
			return nil, nil
		}
		if kind == '%' {
			count *= 2
		}
		// A map is its names and values in turn.
		items := make([]any, 0, min(count, 64))
		for range count {
			item, err := w.value(depth + 1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		if kind == '>' {
			return pushed(items), nil
		}
		return items, nil
	}
	return nil, fmt.Errorf("%q is not RESP", line)
}
