// Against `cargo run --release -- demo`: go run ./examples/fiveminutes
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/redis/go-redis/v9"
	rheostat "rheostat.example/client"
)

func main() {
	if err := tour(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func region(number int) *redis.Client {
	port, err := strconv.Atoi(os.Getenv("RHEOSTAT_PORT"))
	if err != nil {
		port = 7400
	}
	return redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port+10*number), Password: os.Getenv("RHEOSTAT_PASSWORD")})
}

func tour(ctx context.Context) error {
	// One Redis client for each region, the nearest first: two clients of two applications.
	rdb := region(0)
	inUsEast, err := rheostat.New(rheostat.Options{}, rdb, region(1))
	if err != nil {
		return err
	}
	inEu, err := rheostat.New(rheostat.Options{}, region(2), region(1))
	if err != nil {
		return err
	}

	// A session is what one user has seen and written.
	session := inUsEast.Session("default")
	version, err := session.Put(ctx, "tour:photo", "a sunset", 0)
	if err != nil {
		return err
	}
	fmt.Println("wrote", version)
	if _, err = session.Put(ctx, "tour:comment", "what a sunset!", 0); err != nil {
		return err
	}

	// In another process, in another region: at least what she has seen. There it waits until that has arrived.
	elsewhere := inEu.Resume("default", session.Token())
	both, err := elsewhere.ReadTransaction(ctx, "tour:comment", "tour:photo")
	if err != nil {
		return err
	}
	fmt.Printf("eu, one snapshot: %s at level %s\n", both.Values, both.Level)

	// How much consistency, for one call.
	best, err := elsewhere.WithDial(rheostat.Dial{ServiceLevel: "strong 200ms; causal 50ms; eventual"}).Get(ctx, "tour:photo")
	if err != nil {
		return err
	}
	fmt.Println("the best there was time for: entry", best.Achieved.Entry, "in", best.Achieved.Used)

	// Your code keeps its Redis client: commands whose context has a session belong to it.
	rdb.AddHook(inUsEast.Hook())
	ofUser := rheostat.WithSession(ctx, session)
	if err = rdb.Set(ofUser, "tour:usual", "as ever", 0).Err(); err != nil {
		return err
	}
	fmt.Println("go-redis:", rdb.MGet(ofUser, "tour:usual", "tour:photo").Val())

	// A counter that never leaves its bounds, in any region.
	none, seats := int64(0), session.Counter("tour:seats:"+version.String())
	if err = seats.Create(ctx, rheostat.NewCounter{Lower: &none, Initial: 3}); err != nil {
		return err
	}
	for sold := 0; ; sold++ {
		_, err := seats.Global().Add(ctx, -1)
		var lack *rheostat.NoRights
		if errors.As(err, &lack) {
			fmt.Println("sold", sold, "of 3:", lack)
			return nil
		}
		if err != nil {
			return err
		}
	}
}
