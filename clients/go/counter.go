package rheostat

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Counter is one counter, through a session.
type Counter struct {
	session *Session
	key     string
	scope   Scope
}

// Counter is the counter at key. Updates have scope local: they are decided at once, with the rights of the data center that is asked.
func (s *Session) Counter(key string) Counter { return Counter{s, key, Local} }

// Global has updates fetch the rights that are missing from other data centers.
func (c Counter) Global() Counter { return Counter{c.session, c.key, Global} }

// Local has updates use the rights of the data center that is asked, and no others.
func (c Counter) Local() Counter { return Counter{c.session, c.key, Local} }

// AddAll adds to several counters of one partition, to all or to none; less than 0 decrements. Sent again as [Counter.Add].
func (s *Session) AddAll(ctx context.Context, scope Scope, additions ...Addition) ([]int64, error) {
	if len(additions) == 0 {
		return nil, refused("nothing to add")
	}
	args := []any{"RHEO", "COUNTER", "ADD"}
	for _, addition := range additions {
		args = append(args, addition.Key, addition.Delta)
	}
	// The name is filled in when it is the session's turn.
	cmd := redis.NewCmd(ctx, append(args, string(scope), "ID", 0, 0)...)
	if _, err := s.perform(ctx, []redis.Cmder{cmd}, true, true); err != nil {
		return nil, err
	}
	if value, ok := cmd.Val().(int64); ok {
		return []int64{value}, nil
	}
	var values []int64
	for _, value := range slice(cmd.Val()) {
		number, _ := value.(int64)
		values = append(values, number)
	}
	return values, nil
}

// Create makes the counter; refused when the key is there.
func (c Counter) Create(ctx context.Context, counter NewCounter) error {
	args := []any{"RHEO", "COUNTER", "CREATE", c.key}
	if counter.Lower != nil {
		args = append(args, "MIN", *counter.Lower)
	}
	if counter.Upper != nil {
		args = append(args, "MAX", *counter.Upper)
	}
	args = append(args, "VALUE", counter.Initial)
	if len(counter.Placement) > 0 {
		args = append(args, "PLACE")
		for _, weight := range counter.Placement {
			args = append(args, weight)
		}
	}
	_, _, err := c.session.one(ctx, true, args...)
	return err
}

// Add adds delta, or decrements if it is less than 0, and gives the value afterwards, as known in the data center that was asked.
//
// The error is ErrNoRights ([NoRights]) if the bounds do not allow it with the rights that the scope can use. Sent again at the same region also where the first try may have been
// made: the update has a name, under which it is made once.
func (c Counter) Add(ctx context.Context, delta int64) (int64, error) {
	values, err := c.session.AddAll(ctx, c.scope, Addition{c.key, delta})
	if err != nil || len(values) == 0 {
		return 0, err
	}
	return values[0], nil
}

// Transfer takes amount from this counter and adds it to the one at to, of the same partition: both or neither. It gives both values afterwards.
func (c Counter) Transfer(ctx context.Context, to string, amount int64) (here, there int64, err error) {
	if amount < 1 {
		return 0, 0, refused("%d cannot be transferred; the amount is at least 1", amount)
	}
	values, err := c.session.AddAll(ctx, c.scope, Addition{c.key, -amount}, Addition{to, amount})
	if err != nil || len(values) < 2 {
		return 0, 0, err
	}
	return values[0], values[1], nil
}

// Look is the counter as it is known in the data center that is asked.
func (c Counter) Look(ctx context.Context) (CounterView, error) {
	return view(c.session.one(ctx, false, "RHEO", "COUNTER", "GET", c.key))
}

// MoveRights moves rights ("down" or "up") of the data center that is asked to the one called to.
func (c Counter) MoveRights(ctx context.Context, to, direction string, amount uint64) (CounterView, error) {
	return view(c.session.one(ctx, true, "RHEO", "COUNTER", "MOVE", c.key, to, amount, direction))
}

// Reclaim takes over the rights of a data center that is gone for ever.
func (c Counter) Reclaim(ctx context.Context, gone string) (CounterView, error) {
	return view(c.session.one(ctx, true, "RHEO", "COUNTER", "RECLAIM", c.key, gone))
}
