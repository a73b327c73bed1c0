package rheostat

import (
	"fmt"
	"reflect"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"
)

// copied gives commands that are the same, and take replies of their own.
func copied(cmds []redis.Cmder) []redis.Cmder {
	made := make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		made[i] = cmd
		if from := reflect.ValueOf(cmd); from.Kind() == reflect.Pointer {
			to := reflect.New(from.Type().Elem())
			to.Elem().Set(from.Elem())
			made[i] = to.Interface().(redis.Cmder)
		}
	}
	return made
}

// takeReplies gives commands what those that were copied from them have.
func takeReplies(cmds, copies []redis.Cmder) {
	for i, cmd := range cmds {
		if to := reflect.ValueOf(cmd); to.Kind() == reflect.Pointer && cmd != copies[i] {
			to.Elem().Set(reflect.ValueOf(copies[i]).Elem())
		}
	}
}

func text(reply any) string {
	switch reply := reply.(type) {
	case nil:
		return ""
	case string:
		return reply
	case []byte:
		return string(reply)
	}
	return fmt.Sprint(reply)
}

func bytesOf(reply any) []byte {
	if reply == nil {
		return nil
	}
	return []byte(text(reply))
}

func slice(reply any) []any {
	items, _ := reply.([]any)
	return items
}

// entry is one of a map's, as RESP2 or RESP3 has it.
type entry struct {
	name  string
	value any
}

func entries(reply any) []entry {
	var made []entry
	if said, ok := reply.(map[any]any); ok {
		for name, value := range said {
			made = append(made, entry{text(name), value})
		}
		sort.Slice(made, func(i, j int) bool { return made[i].name < made[j].name })
		return made
	}
	items := slice(reply)
	for i := 0; i+1 < len(items); i += 2 {
		made = append(made, entry{text(items[i]), items[i+1]})
	}
	return made
}

func number(reply any) *int64 {
	if value, ok := reply.(int64); ok {
		return &value
	}
	return nil
}

func staleness(reply any) *time.Duration {
	if ms := number(reply); ms != nil {
		bound := time.Duration(min(*ms, int64(time.Duration(1<<63-1)/time.Millisecond))) * time.Millisecond
		return &bound
	}
	return nil
}

func qualityOf(reply any) (Quality, error) {
	var quality Quality
	var reached, used, copies *int64
	var where string
	for _, said := range entries(reply) {
		switch said.name {
		case "level":
			quality.Level = text(said.value)
		case "staleness_ms":
			quality.Staleness = staleness(said.value)
		case "version":
			if said.value != nil {
				version, err := ParseVersion(text(said.value))
				if err != nil {
					return quality, &Error{Kind: ErrServer, Text: err.Error()}
				}
				quality.Version = &version
			}
		case "entry":
			reached = number(said.value)
		case "used_us":
			used = number(said.value)
		case "answered_in":
			if said.value != nil {
				where = text(said.value)
			}
		case "data_centers":
			copies = number(said.value)
		}
	}
	if reached != nil {
		quality.Achieved = &Achieved{Entry: int(*reached), AnsweredIn: where}
		if copies != nil {
			quality.Achieved.DataCenters = int(*copies)
		}
		if used != nil {
			quality.Achieved.Used = time.Duration(*used) * time.Microsecond
		}
	}
	return quality, nil
}

func view(reply any, _ Quality, err error) (CounterView, error) {
	var view CounterView
	if err != nil {
		return view, err
	}
	for _, said := range entries(reply) {
		switch said.name {
		case "value":
			if value := number(said.value); value != nil {
				view.Value = *value
			}
		case "min":
			view.Lower = number(said.value)
		case "max":
			view.Upper = number(said.value)
		case "level":
			view.Level = text(said.value)
		case "staleness_ms":
			view.Staleness = staleness(said.value)
		case "rights":
			for _, of := range entries(said.value) {
				one := Rights{DataCenter: of.name}
				for _, right := range entries(of.value) {
					switch right.name {
					case "down":
						one.Down = number(right.value)
					case "up":
						one.Up = number(right.value)
					case "standing":
						one.Standing = text(right.value)
					}
				}
				view.Rights = append(view.Rights, one)
			}
		}
	}
	return view, nil
}
