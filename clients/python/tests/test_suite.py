"""The cases of ../../suite/suite.toml, each for the sync and the async client."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from support import EAST_ALONE, PORTS, Async, PlainRedis, Proxy, Sync, cut, eventually, key, start_again, tell, unused_port, watch

import rheostat
from rheostat import Absent, Dial, NewCounter, Options, SessionAsgi, SessionWsgi, Value

KEYSPACE = "default"


def test_session_waits_in_another_region(api: Sync) -> None:
    k, east, eu = key("waits"), api.connect("us-east"), api.connect("eu")
    session = east.session(KEYSPACE)
    with cut(*EAST_ALONE) as heal:
        session.put(k, "here")
        elsewhere = eu.resume(KEYSPACE, session.token)
        with pytest.raises(rheostat.Timeout):
            elsewhere.with_dial(within_ms=200).get(k)
        assert eu.session(KEYSPACE).get(k).value is None
        heal()
        assert eventually("the write", lambda: elsewhere.get(k)).value == b"here"


def test_token_resumes_in_another_client(api: Sync) -> None:
    session = api.connect("us-east").session(KEYSPACE)
    others = [api.connect(place) for place in PORTS]
    for turn in range(10):
        k = key("token")
        session.put(k, str(turn))
        for other in others:
            assert other.resume(KEYSPACE, session.token).get(k).value == str(turn).encode()


def test_session_is_carried_over_connections(api: Sync) -> None:
    k, one = key("pool"), api.redis("us-east")
    session = api.wrap(api.client(one)).session(KEYSPACE)
    session.put(k, "first")
    first, before = session.redis.client_id(), session.token
    busy = api.call(one.connection_pool.get_connection)
    session.put(k + "2", "second")
    assert session.redis.client_id() != first
    assert session.token != before
    assert session.get(k).value == b"first" and session.get(k + "2").value == b"second"
    api.call(one.connection_pool.release, busy)


def test_no_effect_before_its_cause(api: Sync) -> None:
    photo, comment = key("photo"), key("comment")
    east, west, eu = (api.connect(place) for place in PORTS)
    with cut(("us-east", "eu")) as heal:
        session = east.session(KEYSPACE)
        session.put(photo, "sunset")
        moved = session.at(west)
        assert moved.get(photo).value == b"sunset"
        moved.put(comment, "wow")
        looks = 0

        def both() -> bool:
            nonlocal looks
            seen = eu.session(KEYSPACE).read_transaction([comment, photo]).values
            assert seen[0] is None or seen[1] is not None, "an effect without its cause"
            looks += 1
            if looks == 20:
                heal()
            return seen == [b"wow", b"sunset"]

        eventually("photo and comment", both)


def test_merge_joins_two_sessions(api: Sync) -> None:
    k, east, eu = key("merge"), api.connect("us-east"), api.connect("eu")
    writer, reader = east.session(KEYSPACE), eu.session(KEYSPACE)
    reader.put(key("own"), "mine")
    with cut(*EAST_ALONE) as heal:
        writer.put(k, "yours")
        assert reader.get(k).value is None
        reader.merge(writer.token)
        with pytest.raises(rheostat.Timeout):
            reader.with_dial(within_ms=200).get(k)
        heal()
        assert eventually("the write", lambda: reader.get(k)).value == b"yours"


def test_concurrent_use_of_one_session(api: Sync) -> None:
    east, eu = api.connect("us-east"), api.connect("eu")
    session = east.session(KEYSPACE)
    keys = [key("together") for _ in range(20)]

    def work(k: str) -> None:
        for turn in range(5):
            session.put(k, str(turn))
            assert session.get(k).value == str(turn).encode()

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(work, keys))
    assert eu.resume(KEYSPACE, session.token).read_transaction(keys).values == [b"4"] * 20


def test_pool_of_fifty_connections(api: Sync) -> None:
    one = api.redis("us-east", max_connections=50)
    client = api.wrap(api.client(one))

    def work(_: int) -> None:
        session, k = client.session(KEYSPACE), key("fifty")
        for turn in range(10):
            session.put(k, str(turn))
            assert session.get(k).value == str(turn).encode()

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(work, range(50)))
    assert len(one.connection_pool._available_connections) <= 50


def test_nothing_of_a_session_stays_on_a_connection(api: Sync) -> None:
    one = api.redis("us-east", max_connections=1)
    client = api.wrap(api.client(one))
    client.session(KEYSPACE).put(key("seen"), "x")
    session = client.session("eventual").with_dial(Dial("eventual", "coordinated", 60000, 5000, "eventual 2s"))
    k = key("stays")
    session.put(k, "x")
    assert session.get(k).value == b"x"

    def ask(*words: str) -> Any:
        return api.call(one.execute_command, *words)

    assert len(ask("RHEO", "SESSION", "GET")) == len(api.call(api.redis("us-east").execute_command, "RHEO", "SESSION", "GET"))
    assert ask("RHEO", "LEVEL") == b"causal"
    assert ask("RHEO", "SLA") is None
    assert ask("RHEO", "FRESH") is None and ask("RHEO", "WITHIN") is None
    assert ask("RHEO", "STRATEGY") == b"auto"
    assert ask("GET", k) is None, "the connection is in its own keyspace again"


def test_redis_client_keeps_its_commands(api: Sync) -> None:
    client, k = api.connect("us-east", decode_responses=True), key("usual")
    session = client.session(KEYSPACE)
    mine = session.redis
    before = session.token
    assert mine.set(k, "text") is True
    assert session.token != before
    assert mine.get(k) == "text" and mine.mget(k, k + "no") == ["text", None]
    assert mine.incrby(k + "n", 3) == 3 and mine.delete(k) == 1
    raw = k.encode() + b"\xff\x00"
    assert mine.set(raw, "bytes") is True and mine.get(raw) == "bytes"
    for refused in (("SELECT", "1"), ("RHEO", "LEVEL", "strong"), ("RHEO", "AT", "-1s"), ("RHEO", "RECEIPT", "ON"), ("RHEO", "MONITOR", "LISTEN"), ("RHEO",)):
        with pytest.raises(rheostat.Refused):
            mine.execute_command(*refused)
    with session.as_current():
        before = session.token
        assert client.redis.set(k, "again") is True
        assert session.token != before
    assert client.redis.get(k) == "again"


def test_pipeline_is_part_of_the_session(api: Sync) -> None:
    session = api.connect("us-east").session(KEYSPACE)
    k, word = key("{pipe}a"), key("{pipe}b")
    before = session.token

    def run(transaction: bool, raise_on_error: bool) -> Any:
        pipe = getattr(session, "_thing", session).redis.pipeline(transaction=transaction)
        pipe.set(k, "1").set(word, "a word").incr(word).get(k)
        return api.call(pipe.execute, raise_on_error)

    replies = run(False, False)
    assert replies[:2] == [True, True] and isinstance(replies[2], rheostat.Refused) and replies[3] == b"1"
    assert session.token != before
    with pytest.raises(rheostat.Refused):
        run(True, True)

    def together() -> Any:
        pipe = getattr(session, "_thing", session).redis.pipeline()
        pipe.set(k, "2").get(k)
        return api.call(pipe.execute)

    assert together() == [True, b"2"]


def test_foreign_token_is_refused(api: Sync) -> None:
    client, k = api.connect("us-east", max_connections=1), key("foreign")
    other = client.session("eventual")
    other.put(k, "there")
    own = client.session(KEYSPACE)
    own.put(k, "before")
    damaged = own.token[:-4] + ("0000" if own.token[-4:] != "0000" else "1111")
    for token in (other.token, damaged, "a word"):
        session = client.resume(KEYSPACE, token)
        for operation in (lambda: session.put(k, "after"), lambda: session.get(k), session.check, lambda: own.merge(token)):
            with pytest.raises(rheostat.TokenError):
                operation()
        assert session.token == token
    assert own.get(k).value == b"before"


def _web(api: Sync, place: str | int) -> Any:
    """A web application in a data center: PUT and GET of a key, and what needs no store, with the middleware. Returns what asks it: status, headers, body."""
    thing = api.connect(place)
    client = getattr(thing, "_thing", thing)
    if isinstance(api, Async):

        async def app(scope: Any, receive: Any, send: Any) -> None:
            body = scope["query_string"]
            if scope["method"] == "PUT":
                await client.redis.set(scope["path"], body)
                assert rheostat.current_async_session() is scope["rheostat.session"]
            elif scope["method"] == "GET":
                body = await client.redis.get(scope["path"]) or b""
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

        wrapped = SessionAsgi(app, client, KEYSPACE)

        def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {"type": "http", "method": method, "path": path, "query_string": body, "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]}
            api.call(wrapped, scope, None, send)
            return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"]

    else:

        def wsgi(environ: Any, start_response: Any) -> Any:
            body = environ["QUERY_STRING"].encode()
            if environ["REQUEST_METHOD"] == "PUT":
                client.redis.set(environ["PATH_INFO"], body)
                assert rheostat.current_session() is environ["rheostat.session"]
                start_response("200 OK", [])
                return [body]

            def later() -> Any:
                found = (client.redis.get(environ["PATH_INFO"]) or b"") if environ["REQUEST_METHOD"] == "GET" else body
                start_response("200 OK", [])
                yield found

            return later()

        of_wsgi = SessionWsgi(wsgi, client, KEYSPACE)

        def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
            told: list[Any] = []
            environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": body.decode()}
            environ.update({"HTTP_" + k.upper().replace("-", "_"): v for k, v in headers.items()})
            content = b"".join(of_wsgi(environ, lambda *args: told.append(args)))  # type: ignore[arg-type,func-returns-value]
            return int(told[0][0][:3]), {k.lower(): v for k, v in told[0][1]}, content

    return ask


def test_middleware_carries_the_session(api: Sync) -> None:
    east, eu = _web(api, "us-east"), _web(api, "eu")
    headers: dict[str, str] = {}
    for turn in range(10):
        path, body = key("/web"), str(turn).encode()
        status, said, _ = east("PUT", path, body, headers)
        assert status == 200
        headers = {rheostat.SESSION_HEADER: said[rheostat.SESSION_HEADER.lower()]}
        assert eu("GET", path, b"", headers)[::2] == (200, body)


def test_middleware_refuses_a_foreign_token(api: Sync) -> None:
    east, path = _web(api, "us-east"), key("/web")
    for token in ("a word", "x" * 20000):
        status, _, body = east("PUT", path, b"x", {rheostat.SESSION_HEADER: token})
        assert status == 400 and rheostat.SESSION_HEADER.encode() in body
    status, headers, body = east("GET", path, b"", {})
    assert (status, body) == (200, b"") and headers[rheostat.SESSION_HEADER.lower()]


def test_middleware_serves_what_needs_no_region(api: Sync) -> None:
    status, headers, body = _web(api, unused_port())("OPTIONS", "/", b"static", {rheostat.SESSION_HEADER: "a token"})
    assert (status, body, headers[rheostat.SESSION_HEADER.lower()]) == (200, b"static", "a token")


def test_level_per_call(api: Sync) -> None:
    session, k = api.connect("us-east").session(KEYSPACE), key("level")
    session.put(k, "x")
    assert session.get(k).level == "causal"
    eventual = session.with_dial(level="eventual")
    assert eventual.get(k).level == "eventual"
    token = session.token
    eventual.put(k, "y")
    assert eventual.token == session.token != token
    assert session.get(k).level == "causal"
    session.set_level("eventual")
    assert [session.get(k).level for _ in range(2)] == ["eventual"] * 2
    session.set_level(None)
    assert session.get(k).level == "causal"


def test_level_that_is_not_served_is_refused(api: Sync) -> None:
    session, k = api.connect("us-east").session(KEYSPACE), key("strong")
    with pytest.raises(rheostat.Refused, match="strong"):
        session.with_dial(level="strong").put(k, "x")
    with pytest.raises(rheostat.Refused):
        api.connect("us-east").session("nowhere").put(k, "x")
    assert session.get(k).value is None


def test_service_level_says_what_was_reached(api: Sync) -> None:
    session, k = api.connect("us-east").session(KEYSPACE), key("sla")
    session.put(k, "x")
    session.set_service_level("strong 1s; causal 1s; eventual")
    read = session.get(k)
    assert read.value == b"x" and read.level == "causal" and read.achieved and read.achieved.entry == 2 and read.achieved.used_us >= 0
    assert read.achieved.answered_in == "us-east" and read.achieved.data_centers is None
    session.set_service_level(None)
    assert session.get(k).achieved is None
    with pytest.raises(rheostat.Refused):
        session.with_dial(service_level="strong soon").get(k)


def test_bounds_of_one_call(api: Sync) -> None:
    session, k = api.connect("eu").session(KEYSPACE), key("bounds")
    session.put(k, "x")
    with cut(*EAST_ALONE):
        with pytest.raises(rheostat.Timeout):
            session.with_dial(fresh_ms=1, within_ms=100).get(k)
        assert session.get(k).value == b"x"
        # It may wait for longer than a reply may take.
        hurried = api.connect("eu", "us-west", options=Options(read_retries=0), socket_timeout=2).session(KEYSPACE)
        with pytest.raises(rheostat.Timeout):
            hurried.with_dial(fresh_ms=1, within_ms=3000).get(k)
        assert hurried.put(key("bounds"), "x").origin == "eu"


def test_quality_of_a_read(api: Sync) -> None:
    session, k = api.connect("us-east").session(KEYSPACE), key("quality")
    version = session.put(k, "x")
    read = eventually("a bound", lambda: (seen := session.get(k)).staleness_ms is not None and seen)
    assert read.version == version and version.origin == "us-east" and read.level == "causal" and read.staleness_ms >= 0
    assert rheostat.Version.parse(str(version)) == version and session.quality.version == version


def test_receipt_of_a_write(api: Sync) -> None:
    session = api.connect("us-east").session(KEYSPACE)
    session.put(key("receipt"), "x")
    assert session.wait(2, timeout=15) == 2
    hurried = api.connect("us-east", "eu", options=Options(read_retries=0), socket_timeout=2).resume(KEYSPACE, session.token)
    # There are not so many, so it is answered when its time is over.
    assert hurried.wait(9, timeout=4) == 2 and hurried.redis.wait(9, 4000) == 2
    assert hurried.put(key("receipt"), "x").origin == "us-east"


def test_read_transaction_reads_one_snapshot(api: Sync) -> None:
    client = api.connect("us-east")
    pair = [key("{1}first"), key("{5}second")]
    writer, done = client.session(KEYSPACE), threading.Event()

    def write() -> None:
        for turn in range(100):
            for k in pair:
                writer.put(k, str(turn))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        first, second = (int(value or b"-1") for value in client.session(KEYSPACE).read_transaction(pair).values)
        assert second <= first <= second + 1
    thread.join()


def test_conditional_write(api: Sync) -> None:
    client, k = api.connect("us-east"), key("if")
    session = client.session("strong")
    assert eventually("a leader", lambda: session.put_if(k, "a", Absent()))
    assert session.put_if(k, "b", Absent()) is None
    assert session.put_if(k, "b", Value("x")) is None
    assert session.get(k).value == b"a"
    version = session.put_if(k, "b", Value("a"))
    assert version and session.get(k).version == version
    with pytest.raises(rheostat.Refused):
        client.session(KEYSPACE).put_if(k, "a", Absent())


def test_counter_keeps_its_bounds(api: Sync) -> None:
    session, k = api.connect("us-east").session(KEYSPACE), key("{c}stock")
    stock = session.counter(k)
    stock.create(NewCounter(lower=0, initial=10))
    with pytest.raises(rheostat.Refused):
        stock.create(NewCounter())
    assert stock.add(-1) == 9
    with pytest.raises(rheostat.NoRights) as refused:
        stock.add(-100)
    why = refused.value
    assert (why.key, why.value, why.direction, why.needed) == (k, 9, "down", 100) and why.here + why.elsewhere <= 9
    assert eventually("all rights", lambda: stock.global_().add(-9) == 0)
    with pytest.raises(rheostat.NoRights):
        stock.global_().add(-1)
    other = session.counter(key("{c}other"))
    other.create(NewCounter(lower=0, upper=100, placement=(1, 0, 0), initial=5))
    assert other.transfer(k, 2) == (3, 2)
    with pytest.raises(rheostat.NoRights):
        other.transfer(k, 4)
    view = other.look()
    assert (view.value, view.lower, view.upper) == (3, 0, 100) and {right.data_center for right in view.rights} == set(PORTS)


def test_counter_rights_move(api: Sync) -> None:
    east, eu, k = api.connect("us-east"), api.connect("eu"), key("moved")
    session = east.session(KEYSPACE)
    session.counter(k).create(NewCounter(lower=0, initial=10, placement=(1, 0, 0)))
    session.counter(k).move_rights("eu", "down", 4)
    there = session.at(eu)
    assert eventually("the rights", lambda: there.counter(k).add(-4) == 6)


def test_counter_update_is_made_once(api: Sync) -> None:
    k, proxy = key("once"), Proxy(PORTS["us-east"], b"COUNTER\r\n$3\r\nADD", 1)
    session = api.connect(proxy.port).session(KEYSPACE)
    session.counter(k).create(NewCounter(lower=0, initial=10))
    assert session.counter(k).add(-1) == 9
    assert proxy.seen == 2
    assert session.counter(k).add(-1) == 8 and session.counter(k).look().value == 8
    proxy.close()


def test_counter_update_stays_in_its_region(api: Sync) -> None:
    k, proxy = key("stays"), Proxy(PORTS["us-east"], b"COUNTER\r\n$3\r\nADD", 1, ends=True)
    session = api.connect(proxy.port, "eu").session(KEYSPACE)
    session.counter(k).create(NewCounter(lower=0, initial=12))
    assert session.wait(2, timeout=15) == 2
    with pytest.raises(rheostat.Unreachable) as lost:
        session.counter(k).add(-1)
    assert not lost.value.nothing_sent and proxy.seen == 1
    home = session.at(api.connect("us-east"))
    assert home.counter(k).look().value == 11
    home.put(k + "after", "x")
    assert home.at(api.connect("eu")).counter(k).look().value == 11


def test_counter_update_in_doubt_stays_in_doubt(api: Sync) -> None:
    plain = PlainRedis(busy=True)
    session = api.connect(plain.port, protocol=2).session(KEYSPACE)
    with pytest.raises(rheostat.Unreachable) as lost:
        session.counter("k").add(-1)
    assert not lost.value.nothing_sent and plain.updates > 1
    with pytest.raises(rheostat.Busy):
        session.counter("k").add(-1)
    plain.close()


def test_write_is_not_sent_twice(api: Sync) -> None:
    k, proxy = key("twice"), Proxy(PORTS["us-east"], b"$3\r\nSET\r\n", 1)
    session = api.connect(proxy.port, "eu").session(KEYSPACE)
    session.get(k)
    with pytest.raises(rheostat.Unreachable) as lost:
        session.put(k, "x")
    assert not lost.value.nothing_sent and proxy.seen == 1
    assert session.get(k).value in (None, b"x")
    proxy.close()


def test_failover_to_another_region(api: Sync) -> None:
    client, k = api.connect("us-west", "eu", options=Options(return_after=0.05)), key("failover")
    session = client.session(KEYSPACE)
    assert session.put(k, "from the west").origin == "us-west"
    assert session.wait(2, timeout=15) == 2
    tell("us-west", signal.SIGKILL)
    try:
        assert session.get(k).value == b"from the west"
        assert session.put(k, "from eu").origin == "eu"
        assert session.get(k).value == b"from eu"
    finally:
        start_again()
    eventually("the way back", lambda: session.put(k, "home").origin == "us-west")
    assert session.get(k).value == b"home"


def test_lost_idle_connections_are_made_anew(api: Sync) -> None:
    k, west = key("idle"), Proxy(PORTS["us-west"])
    client = api.connect(west.port, "eu")
    sessions = [client.session(KEYSPACE) for _ in range(5)]
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda session: session.put(k, "before"), sessions))
    for session in sessions:
        west.drop()
        assert session.put(k, "after").origin == "us-west"
        west.drop()
        assert session.get(k).value == b"after"
    assert all(avoided == 0 for avoided in getattr(client, "_thing", client)._regions._avoided)
    west.close()


def test_hung_node_is_passed_over(api: Sync) -> None:
    k, west = key("hung"), Proxy(PORTS["us-west"])
    session = api.connect(west.port, "eu", socket_timeout=2).session(KEYSPACE)
    assert session.put(k, "from the west").origin == "us-west"
    west.hangs = True
    assert session.get(k).value == b"from the west"
    assert session.put(k, "from eu").origin == "eu"
    west.close()


@pytest.mark.parametrize("greets", [(), ("AUTH", "CLIENT")], ids=["to everything", "to commands"])
def test_opening_node_is_passed_over(api: Sync, greets: tuple[str, ...]) -> None:
    k, west, eu = key("opening"), PlainRedis(opening=True, greets=greets), api.connect("eu").session(KEYSPACE)
    eu.counter(k + "count").create(NewCounter(lower=0, initial=12))
    eu.put(k, "there")
    operations = (
        lambda session: session.put(k + "put", "x").origin == "eu",
        lambda session: session.get(k).value == b"there",
        lambda session: session.counter(k + "count").add(-1) < 12,
    )

    def client(*others: str) -> Any:
        return api.wrap(api.client([api.redis(west.port, protocol=2), *map(api.redis, others)], Options(read_retries=0)))

    for operation in operations:
        session = client("eu").session(KEYSPACE)
        assert operation(session)
        asked = len(west.commands)
        assert operation(session) and len(west.commands) == asked
    api.listen(client("eu")).close()
    alone = client()
    for failing in (*operations, lambda _: api.listen(alone)):
        with pytest.raises(rheostat.Unreachable, match=f"{west.port}.*opening its data") as opening:
            failing(alone.session(KEYSPACE))
        assert opening.value.nothing_sent
    assert "SET" not in west.commands
    west.close()


def test_dead_node_is_a_clear_error(api: Sync) -> None:
    port = unused_port()
    session = api.connect(port, options=Options(read_retries=1)).session(KEYSPACE)
    for operation in (lambda: session.put("k", "x"), lambda: session.get("k"), lambda: session.counter("k").add(1)):
        with pytest.raises(rheostat.Unreachable, match=str(port)) as dead:
            operation()
        assert dead.value.nothing_sent and isinstance(dead.value, redis.ConnectionError)


def test_siblings_are_resolved(api: Sync) -> None:
    client, k = api.connect("us-east"), key("side")
    one, other = client.session("quorum"), client.session("quorum")
    context = one.siblings(k).context
    one.replace(k, "milk", context)
    other.replace(k, "bread", context)
    assert sorted(one.siblings(k).values) == [b"bread", b"milk"]
    assert one.resolve(k, lambda values: b"+".join(sorted(values))) == b"bread+milk"
    assert other.siblings(k).values == [b"bread+milk"]
    assert one.resolve(k, lambda values: b"never") == b"bread+milk"


def test_wrong_password_is_a_clear_error(api: Sync) -> None:
    with pytest.raises(rheostat.Unauthenticated):
        api.connect("us-east", password="guess").session(KEYSPACE).get("k")
    # A right one ends the count of wrong ones.
    api.connect("us-east").session(KEYSPACE).get("k")


def test_connection_that_must_show_a_password_again_is_made_anew(api: Sync) -> None:
    plain = PlainRedis(forgets=True)
    assert api.connect(plain.port, protocol=2).session(KEYSPACE).get("k").value == b"OK"
    plain.close()


def test_pool_without_a_connection_is_busy(api: Sync) -> None:
    one = api.redis("us-east", max_connections=1)
    session = api.wrap(api.client(one)).session(KEYSPACE)
    busy = api.call(one.connection_pool.get_connection)
    with pytest.raises(rheostat.Busy):
        session.put("k", "x")
    api.call(one.connection_pool.release, busy)
    session.put(key("busy"), "x")


def test_server_without_rheo_is_a_clear_error(api: Sync) -> None:
    plain = PlainRedis()
    session = api.connect(plain.port, protocol=2).session(KEYSPACE)
    for operation in (lambda: session.put("k", "x"), lambda: session.get("k")):
        with pytest.raises(rheostat.NotRheostat, match="no Rheostat"):
            operation()
    assert "SET" not in plain.commands
    plain.close()


def test_cancelled_operation_leaves_the_pool_clean(api: Sync) -> None:
    k, east, one = key("cancel"), api.connect("us-east").session(KEYSPACE), api.redis("eu", max_connections=1, socket_timeout=20 if isinstance(api, Async) else 3)
    eu = api.wrap(api.client(one, Options(read_retries=0)))
    with cut(*EAST_ALONE):
        east.put(k, "x")
        waiting, other = eu.resume(KEYSPACE, east.token), eu.session(KEYSPACE)
        other.put(k + "2", "mine")
        if isinstance(api, Async):

            async def give_up() -> None:
                task = asyncio.ensure_future(waiting._thing.get(k))
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            api.call(give_up)
        else:
            with pytest.raises(rheostat.Timeout):
                waiting.get(k)
        assert other.get(k + "2").value == b"mine"
        assert waiting.token == east.token


def _name(word: str) -> str:
    """A predicate's name."""
    return key(word).replace(":", "_")


def _two_keys(word: str) -> tuple[str, str, str]:
    """A predicate that two keys must not be 1 at once; its name, and the keys."""
    one, other = key(word), key(word)
    return watch(_name(word), f"!({one} = 1 && {other} = 1)"), one, other


def _violate(api: Sync, one: str, other: str) -> None:
    api.connect("us-east").session("eventual").put(one, "1")
    api.connect("eu").session("eventual").put(other, "1")


def _until(violations: Any, what: str, wanted: Any) -> Any:
    until = time.monotonic() + 60
    while (left := until - time.monotonic()) > 0:
        said = violations.next(left)
        if wanted(said):
            return said
    raise AssertionError(f"never told: {what}")


def _certain(said: Any) -> bool:
    return isinstance(said, rheostat.Violation) and said.certain


def test_violation_is_told_with_its_evidence(api: Sync) -> None:
    name, one, other = _two_keys("told")
    elsewhere = _two_keys("elsewhere")[0]
    violations, others = api.listen(api.connect("eu"), name), api.listen(api.connect("eu"), elsewhere)
    first = api.connect("us-east").session("eventual").put(one, "1")
    second = api.connect("us-west").session("eventual").put(other, "1")
    told = _until(violations, "the violation", _certain)
    assert (told.monitor, told.keyspace) == (name, "eventual") and told.node.endswith("-1") and told.number > 0
    assert abs(told.at_ms / 1000 - time.time()) < 60 and told.not_before[0] < told.at_ms
    states = {state.key.decode(): state for state in told.evidence}
    assert set(states) == {one, other}
    for k, place, version in ((one, "us-east", first), (other, "us-west", second)):
        state = states[k]
        assert (state.value, state.data_center) == (b"1", place)
        assert (state.version.millis, state.version.counter) == (version.millis, version.counter)
        assert told.not_before[0] - 1000 < state.from_[0] <= told.at_ms and (state.until is None or state.until > state.from_)
    assert not isinstance(others.next(0.2), rheostat.Violation)
    violations.close()
    others.close()


def test_alarms_come_again_from_another_region(api: Sync) -> None:
    name, one, other = _two_keys("again")
    violations = api.listen(api.connect("us-west", "eu", options=Options(return_after=0.05)), name)
    tell("us-west", signal.SIGKILL)
    try:
        assert "127.0.0.1" in _until(violations, "silence", lambda said: isinstance(said, rheostat.Silence)).why
        missed = violations.missed
        _until(violations, "that it goes on", lambda said: isinstance(said, rheostat.Missed))
        assert violations.missed > missed
    finally:
        start_again()
    _violate(api, one, other)
    _until(violations, "the violation", _certain)
    violations.close()


def test_silent_node_is_passed_over(api: Sync) -> None:
    name, one, other = _two_keys("silent")
    west = Proxy(PORTS["us-west"])
    violations = api.listen(api.connect(west.port, "eu", options=Options(silence_after=4.0), socket_timeout=2), name)
    # It is asked whether it is there, and says so.
    assert not isinstance(violations.next(6.4), rheostat.Silence)
    west.hangs = True
    _until(violations, "silence", lambda said: isinstance(said, rheostat.Silence))
    _until(violations, "that it goes on", lambda said: isinstance(said, rheostat.Missed))
    _violate(api, one, other)
    _until(violations, "the violation", _certain)
    violations.close()
    west.close()


def test_closing_ends_the_wait(api: Sync) -> None:
    name = _two_keys("close")[0]
    one = api.redis("eu")

    def connections() -> int:
        # Those with this name: clients of other tests close theirs when they are collected.
        return sum(client["name"] == name for client in api.call(one.client_list))

    violations = api.listen(api.connect("eu", client_name=name), name)
    assert connections() == 1
    began = time.monotonic()
    while violations.next(0.2) is not None:
        pass
    assert time.monotonic() - began < 30
    threading.Timer(0.2, violations.close).start()
    while violations.next() is not None:
        pass
    assert violations.next() is None and violations.next(0.1) is None
    violations.close()
    eventually("one connection less", lambda: connections() == 0)
    # The other idioms.
    if isinstance(api, Async):

        async def loop() -> list[Any]:
            async with await rheostat.AsyncViolations.listen(api.connect("eu")._thing, name) as listening:
                asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(listening.close()))
                waiting = asyncio.ensure_future(listening.next())
                await asyncio.sleep(0.01)
                waiting.cancel()
                return [said async for said in listening if isinstance(said, rheostat.Violation)]

        assert api.call(loop) == []
    else:
        with rheostat.Violations.listen(api.connect("eu"), name) as listening:
            threading.Timer(0.1, listening.close).start()
            assert [said for said in listening if isinstance(said, rheostat.Violation)] == []


def test_listening_is_refused_with_a_typed_error(api: Sync) -> None:
    for options in ({"username": "writer", "password": "only writes"}, {"password": "guess"}):
        with pytest.raises(rheostat.Unauthenticated):
            api.listen(api.connect("us-east", **options))
    # A right one ends the count of wrong ones.
    api.connect("us-east").session(KEYSPACE).get("k")
    plain, old, port = PlainRedis(resp3=True), PlainRedis(), unused_port()
    with pytest.raises(rheostat.NotRheostat, match="no Rheostat"):
        api.listen(api.connect(plain.port))
    with pytest.raises(rheostat.Refused, match="RESP3"):
        api.listen(api.connect(old.port))
    with pytest.raises(rheostat.Unreachable, match=str(port)) as dead:
        api.listen(api.connect(port))
    assert dead.value.nothing_sent
    plain.close()
    old.close()


def test_refusal_later_ends_the_subscription(api: Sync) -> None:
    plain = PlainRedis(resp3=True, alarms=1)
    violations = api.listen(api.connect(plain.port, options=Options(silence_after=4.0)), "m")
    assert isinstance(violations.next(60), rheostat.Violation)
    assert "Authentication" in _until(violations, "silence", lambda said: isinstance(said, rheostat.Silence)).why
    for _ in range(2):
        with pytest.raises(rheostat.Unauthenticated):
            violations.next(60)
    plain.close()


def test_slow_listener_is_told_what_was_left_out(api: Sync) -> None:
    plain = PlainRedis(resp3=True, alarms=3000)
    # For ever is longer than a socket takes.
    client = api.connect(plain.port, options=Options(silence_after=float("inf")), socket_timeout=None)
    violations = api.listen(client, "m")
    time.sleep(1)
    told, left_out = [], 0
    while len(told) + left_out < 3000:
        said = _until(violations, "all", lambda said: said is not None)
        if isinstance(said, rheostat.Violation):
            told.append(said.number)
        else:
            left_out += int(re.findall(r"(\d+) events were left out", said.why)[0])
    assert told == sorted(told) and told[0] == 0 and len(told) + left_out == 3000
    violations.close()
    plain.close()
