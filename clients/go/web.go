package rheostat

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// SessionHeader is the header of a web request and of its answer that carries a session's token.
const SessionHeader = "Rheostat-Session"

// longestToken bounds what is taken from a web request, in bytes.
const longestToken = 16384

// Middleware carries a user's session with web requests: in by [SessionHeader], out by the same. A token that the servers refuse is answered with 400.
//
// While a request is served, its context has the session ([FromContext]). What is done after the answer has begun is not in the token that the answer carries.
func Middleware(client *Client, keyspace string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			token := request.Header.Get(SessionHeader)
			session := client.Resume(keyspace, token)
			if len(token) > longestToken {
				http.Error(writer, fmt.Sprintf("%s: longer than %d bytes", SessionHeader, longestToken), http.StatusBadRequest)
				return
			}
			if token != "" {
				if err := session.Check(request.Context()); errors.Is(err, ErrToken) {
					http.Error(writer, SessionHeader+": "+err.Error(), http.StatusBadRequest)
					return
				}
			}
			telling := &teller{ResponseWriter: writer, session: session}
			next.ServeHTTP(telling, request.WithContext(WithSession(request.Context(), session)))
			telling.tell()
		})
	}
}

// teller adds the header when the answer begins.
type teller struct {
	http.ResponseWriter
	session *Session
	told    bool
}

func (t *teller) tell() {
	if !t.told {
		t.told = true
		t.session.SetHeader(t.Header())
	}
}

func (t *teller) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		t.tell()
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *teller) Write(body []byte) (int, error) {
	t.tell()
	return t.ResponseWriter.Write(body)
}

// Unwrap is for [http.ResponseController].
func (t *teller) Unwrap() http.ResponseWriter {
	t.tell()
	return t.ResponseWriter
}

// Flush sends what was written, where that is possible.
func (t *teller) Flush() {
	t.tell()
	if flusher, ok := t.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Hijack hands the connection over, where that is possible, as for a WebSocket.
func (t *teller) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	t.tell()
	return http.NewResponseController(t.ResponseWriter).Hijack()
}
