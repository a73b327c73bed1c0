"""Against `cargo run --release -- demo`: python examples/five_minutes.py"""

import os

import redis

import rheostat

PORT = int(os.environ.get("RHEOSTAT_PORT", "7400"))
PASSWORD = os.environ.get("RHEOSTAT_PASSWORD")


def region(number: int) -> redis.Redis:
    return redis.Redis(port=PORT + 10 * number, password=PASSWORD, socket_timeout=10)


# One Redis client for each region, the nearest first: two clients of two applications.
in_us_east = rheostat.Client([region(0), region(1)])
in_eu = rheostat.Client([region(2), region(1)])

# A session is what one user has seen and written.
session = in_us_east.session("default")
print("wrote", session.put("tour:photo", "a sunset"))
session.put("tour:comment", "what a sunset!")

# In another process, in another region: at least what she has seen. There it waits until that has arrived.
elsewhere = in_eu.resume("default", session.token)
both = elsewhere.read_transaction(["tour:comment", "tour:photo"])
print("eu, one snapshot:", both.values, "at level", both.level)

# How much consistency, for one call.
quick = elsewhere.with_dial(level="eventual").get("tour:photo")
print("eventual:", quick.value, "at most", quick.staleness_ms, "ms stale")
best = elsewhere.with_dial(service_level="strong 200ms; causal 50ms; eventual").get("tour:photo")
print("the best there was time for: entry", best.achieved and best.achieved.entry)

# Your code keeps its Redis client: these commands belong to the session.
lent = session.redis
lent.set("tour:usual", "as ever")
print("redis-py:", lent.mget("tour:usual", "tour:photo"))

# A counter that never leaves its bounds, in any region.
seats = session.counter("tour:seats:" + session.token[-8:])
seats.create(rheostat.NewCounter(lower=0, initial=3))
sold = 0
try:
    while True:
        seats.global_().add(-1)
        sold += 1
except rheostat.NoRights as none_left:
    print("sold", sold, "of 3:", none_left)

# For the next web request, or the next service.
print(next(iter(session.headers())), "has", len(session.token), "bytes")
