package rheostat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Dial is what operations ask for beside. What is not said is the keyspace's own.
type Dial struct {
	// Level: eventual, session, causal, local, strong, or guarantees with + between them.
	Level string
	// Strategy says how a read-only transaction finds its snapshot: auto, coordinated, predicted.
	Strategy string
	// Fresh says how stale a read may be; until it is fresh enough, it waits.
	Fresh time.Duration
	// Within says how long an operation may wait at its partition server.
	Within time.Duration
	// ServiceLevel is a name or entries, best first, as in "strong 200ms; causal 1s 20ms; eventual"; "none" is none at all.
	ServiceLevel string
	// Quorum: how many replicas are asked, must answer a read, must have a write, in keyspaces of protocol quorum.
	Quorum *[3]int
	// Groups are the checking groups of reads, in keyspaces of protocol adaptive.
	Groups []int
}

// bound is for how long so many commands may wait before they are answered, beside what a reply takes; 32 bits of milliseconds each, as the server has them.
func (d Dial) bound(count int) time.Duration {
	return min(max(d.Within, 0), math.MaxUint32*time.Millisecond) * time.Duration(count)
}

// around is what makes a connection ask for this, and what takes it back.
func (d Dial) around() (before, after [][]any) {
	set := func(name, usual string, values ...any) {
		before = append(before, append([]any{"RHEO", name}, values...))
		after = append(after, []any{"RHEO", name, usual})
	}
	if d.Level != "" {
		set("LEVEL", "DEFAULT", d.Level)
	}
	if d.Strategy != "" {
		set("STRATEGY", "AUTO", d.Strategy)
	}
	if d.Fresh > 0 {
		set("FRESH", "NONE", milliseconds(d.Fresh))
	}
	if d.Within > 0 {
		set("WITHIN", "NONE", milliseconds(d.Within))
	}
	if d.ServiceLevel != "" {
		set("SLA", "DEFAULT", d.ServiceLevel)
	}
	if d.Quorum != nil {
		set("QUORUM", "DEFAULT", d.Quorum[0], d.Quorum[1], d.Quorum[2])
	}
	if len(d.Groups) > 0 {
		groups := make([]any, len(d.Groups))
		for i, group := range d.Groups {
			groups[i] = group
		}
		set("GROUPS", "AUTO", groups...)
	}
	return before, after
}

func milliseconds(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// Version is a version's name.
type Version struct {
	// Millis is when it was written, on its writer's clock: milliseconds since the Unix epoch.
	Millis uint64
	// Counter is the counter within the millisecond.
	Counter uint32
	// Origin is the data center where it was written.
	Origin string
}

// String is millis.counter@origin.
func (v Version) String() string { return fmt.Sprintf("%d.%d@%s", v.Millis, v.Counter, v.Origin) }

// ParseVersion reads what [Version.String] says.
func ParseVersion(text string) (Version, error) {
	written, origin, found := strings.Cut(text, "@")
	millis, counter, dotted := strings.Cut(written, ".")
	m, err1 := strconv.ParseUint(millis, 10, 64)
	c, err2 := strconv.ParseUint(counter, 10, 32)
	if !found || !dotted || err1 != nil || err2 != nil {
		return Version{}, refused("%q is no version", text)
	}
	return Version{m, uint32(c), origin}, nil
}

// Achieved is what an answer satisfies of its service level.
type Achieved struct {
	// Entry is the first entry that it satisfies, counted from 1.
	Entry int
	// Used is the time that it took at the node that was asked. The way there and back is not in it.
	Used time.Duration
	// AnsweredIn is the data center that has answered a read; empty after a write.
	AnsweredIn string
	// DataCenters is in how many data centers a write was when it was answered; 0 after a read.
	DataCenters int
}

// Quality is how good an answer was.
type Quality struct {
	// Level is the level that was achieved; empty after a write.
	Level string
	// Staleness: every write of another data center that is older is reflected; nil when no bound is known.
	Staleness *time.Duration
	// Version is the version that was read or written, if there is one.
	Version *Version
	// Achieved is there under a service level.
	Achieved *Achieved
}

// Read is what a read returned.
type Read struct {
	// Value is nil when the key is absent, deleted or expired.
	Value []byte
	Quality
}

// Many is what a read-only transaction returned.
type Many struct {
	// Values has one value for each key, in their order; nil when the key is absent.
	Values [][]byte
	Quality
}

// Pair is a key and what to write to it.
type Pair struct{ Key, Value string }

// Condition is what a key must be for [Session.PutIf] to write it.
type Condition struct {
	kind     string
	expected string
}

// Absent: the key has no value.
func Absent() Condition { return Condition{kind: "NX"} }

// Present: the key has a value.
func Present() Condition { return Condition{kind: "XX"} }

// Value: the key has this value.
func Value(expected string) Condition { return Condition{kind: "CAS", expected: expected} }

// Siblings are values that stand side by side.
type Siblings struct {
	// Values, newest first; none if the key is absent.
	Values [][]byte
	// Context says which versions were seen; [Session.Replace] takes it.
	Context string
}

// Scope is where an update of a counter gets the rights that it needs.
type Scope string

const (
	// Local: in the data center that is asked, and nowhere else.
	Local Scope = "LOCAL"
	// Global: from other data centers too.
	Global Scope = "GLOBAL"
)

// NewCounter is a counter to be made.
type NewCounter struct {
	// Lower and Upper bound it; nil is no bound.
	Lower, Upper *int64
	// Initial is its value at first.
	Initial int64
	// Placement is each data center's weight in the placement of its rights; none is evenly.
	Placement []int
}

// Addition is a counter's key and what to add to it.
type Addition struct {
	Key   string
	Delta int64
}

// Rights are what one data center may do to a counter.
type Rights struct {
	// DataCenter is its name.
	DataCenter string
	// Down and Up are by how much it may decrement and increment; nil without that bound.
	Down, Up *int64
	// Standing is "member", "reclaiming", or "reclaimed by NAME".
	Standing string
}

// CounterView is a counter as known in one data center.
type CounterView struct {
	Value        int64
	Lower, Upper *int64
	Rights       []Rights
	Level        string
	Staleness    *time.Duration
}
