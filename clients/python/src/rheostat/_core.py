"""What a session does, without input and output: generators that yield steps, which the sync and the async session take in their own way."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, TypeVar, Union

import redis

from . import _errors as errors
from ._types import (
    Absent,
    Achieved,
    Bytes,
    Condition,
    CounterView,
    Dial,
    Many,
    NewCounter,
    Options,
    Present,
    Quality,
    Read,
    Rights,
    Siblings,
    Value,
    Version,
    Word,
)

T = TypeVar("T")

#: The header of a web request and of its answer that carries a session's token.
SESSION_HEADER = "Rheostat-Session"
#: The longest token that is taken from a web request, in bytes.
LONGEST_TOKEN = 16384
#: Commands that write nothing; a session sends them along with its token, in one round trip.
READS = frozenset(
    "GET MGET STRLEN EXISTS TTL PTTL EXPIRETIME PEXPIRETIME TYPE SCAN DBSIZE TOUCH PING ECHO TIME WAIT COMMAND INFO CLUSTER CLIENT READONLY".split()
)
#: What the connection of a session keeps for itself.
NOT_IN_A_SESSION = frozenset("AUTH HELLO SELECT RESET QUIT MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE PSUBSCRIBE MONITOR".split())
_DIALS = frozenset("LEVEL STRATEGY FRESH WITHIN AT SLA QUORUM GROUPS SCOPE VIEW SESSION RECEIPT MONITOR".split())


#: Sockets take no timeout that is much longer, in seconds.
_LONGEST_WAIT = 1_000_000.0


class Command(NamedTuple):
    """One command; ``parse`` is how redis-py reads its reply: the command's name and the options, or nothing."""

    args: tuple[Word, ...]
    parse: dict[str, Any] | None = None


@dataclass(frozen=True)
class Take:
    """Step: have a connection to this region. Throws :class:`NoConnection`, or an error that is told as it is."""

    region: int


@dataclass(frozen=True)
class Talk:
    """Step: send these commands together, and return their replies; error replies are values. Throws :class:`Lost`."""

    commands: Sequence[Command]
    #: For how many seconds the server may wait before it answers, beside what commands ask it to wait and what a reply may take.
    bound: float = 0.0


@dataclass(frozen=True)
class Give:
    """Step: give the connection back to its pool."""


@dataclass(frozen=True)
class Sleep:
    """Step: pause for so many seconds."""

    seconds: float


Step = Union[Take, Talk, Give, Sleep]
Steps = Generator[Step, Any, T]


class NoConnection(Exception):
    """No connection can be made, or the node opens its data. Nothing was sent."""


class Lost(Exception):
    """The connection was lost, or nothing came in time."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.timed_out = isinstance(cause, (TimeoutError, redis.TimeoutError))
        #: Whether the node has answered that it opens its data after a restart.
        self.opening = isinstance(cause, redis.BusyLoadingError)


class Regions:
    """Which region is asked: the first one that can be reached."""

    def __init__(self, names: Sequence[str], options: Options) -> None:
        self.names = names
        self.options = options
        self._avoided = [0.0] * len(names)
        self._lock = threading.Lock()

    def choose(self, passed: set[int]) -> int | None:
        """The first region that is not passed over, else the first of those that are and have not been tried now."""
        now = time.monotonic()
        left = [index for index in range(len(self.names)) if index not in passed]
        with self._lock:
            good = [index for index in left if self._avoided[index] <= now]
        return good[0] if good else left[0] if left else None

    def avoid(self, region: int) -> None:
        with self._lock:
            self._avoided[region] = time.monotonic() + self.options.return_after

    def reached(self, region: int) -> None:
        with self._lock:
            self._avoided[region] = 0.0


class Tries:
    """How often and how long an operation is tried."""

    def __init__(self, options: Options) -> None:
        self.left = options.read_retries
        self.pause = options.retry_pause
        self.until = time.monotonic() + options.deadline

    def again(self) -> float | None:
        """The pause before the next try; nothing if there is none."""
        if self.left == 0 or time.monotonic() + self.pause > self.until:
            return None
        self.left -= 1
        pause, self.pause = self.pause, self.pause * 2
        return pause


class State:
    """What the views of one session share."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.quality = Quality()
        self.client = secrets.randbits(63)
        self.number = 0

    def name(self) -> tuple[int, int]:
        """The name of the next update of counters."""
        self.number += 1
        return self.client, self.number

    def rename(self) -> None:
        """An update's end is not known: those that follow have another client's name, since only one of a client may be under way."""
        self.client, self.number = secrets.randbits(63), 0


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _word(value: Any) -> str:
    """A word of a command, which may be any bytes, to be compared."""
    return (value.decode("latin-1") if isinstance(value, bytes) else str(value)).upper()


def _map(reply: Any) -> dict[str, Any]:
    """A map, as RESP2 or RESP3 has it."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {_text(key): value for key, value in pairs}


def _quality(reply: Any) -> Quality:
    said = _map(reply)
    level, version = said.get("level"), said.get("version")
    achieved = None
    if said.get("entry") is not None:
        where = said.get("answered_in")
        achieved = Achieved(said["entry"], said.get("used_us") or 0, None if where is None else _text(where), said.get("data_centers"))
    return Quality(
        None if level is None else _text(level), said.get("staleness_ms"), None if version is None else Version.parse(_text(version)), achieved
    )


def _view(reply: Any) -> CounterView:
    said = _map(reply)
    rights = [Rights(name, of["down"], of["up"], _text(of["standing"])) for name, of in ((name, _map(of)) for name, of in _map(said["rights"]).items())]
    return CounterView(said["value"], said["min"], said["max"], rights, _text(said["level"]), said["staleness_ms"])


def own(*args: Word) -> Command:
    """A command whose reply this package reads itself."""
    return Command(args)


def is_read(args: Sequence[Any]) -> bool:
    """Whether a command writes nothing."""
    words = [*_word(args[0]).split(" "), *map(_word, args[1:2])]
    return words[0] in READS or words[:2] in (["RHEO", "EXPLAIN"], ["RHEO", "SIBLINGS"], ["RHEO", "STATUS"], ["MEMORY", "USAGE"])


def waits(talk: Talk) -> float:
    """For how many seconds the server may wait before it answers: for its bound, and for what commands ask it to wait."""
    commands = talk.commands
    times = [_text(command.args[2]) for command in commands if len(command.args) == 3 and _word(command.args[0]) == "WAIT"]
    return min(_LONGEST_WAIT, talk.bound + sum(int(time) / 1000 for time in times if time.isdecimal()))


def fits(args: Sequence[Any]) -> None:
    """Refuses what would change the connection rather than be part of the session."""
    words = [word for arg in args[:2] for word in _word(arg).split(" ")]
    if words[0] in NOT_IN_A_SESSION or (words[0] == "RHEO" and not _DIALS.isdisjoint(words[1:2])) or words[:2] == ["CLIENT", "SETNAME"]:
        raise errors.Refused(f"{' '.join(words[:2])} is about a connection, and a session has none of its own: use the session's methods")


class SessionCore:
    """The operations of a session as steps."""

    def __init__(self, regions: Regions, databases: Sequence[int], keyspace: str | int | None, state: State, dial: Dial) -> None:
        self._regions = regions
        self._databases = databases
        #: The keyspace's name or number; nothing is that of the Redis client.
        self.keyspace = keyspace
        self._state = state
        self.dial = dial

    def headers(self) -> dict[str, str]:
        """The header for a web request to another service, or for the answer to a browser."""
        return {SESSION_HEADER: self._state.token} if self._state.token else {}

    def _around(self, region: int) -> tuple[list[Command], list[Command]]:
        """What makes a connection the session's, and what makes it nobody's."""
        before = [] if self.keyspace is None else [own("SELECT", self.keyspace)]
        before.append(own("RHEO", "SESSION", "RESUME", self._state.token) if self._state.token else own("RHEO", "SESSION", "RESET"))
        before += [own(*args) for args in self.dial.before()]
        after = [own(*args) for args in self.dial.after()] + [own("RHEO", "SESSION", "RESET")]
        if self.keyspace is not None:
            after.append(own("SELECT", self._databases[region]))
        return before, after

    def perform(self, commands: Sequence[Command], writes: bool, named: bool = False) -> Steps[list[Any]]:
        """The replies of ``commands``. A single one that is answered with an error raises it, and so does what makes none of them be done.

        What writes is sent when the server has said that it took session and level; so where it did not, nothing was changed. Reads go along with them.
        """
        tries = Tries(self._regions.options)
        passed: set[int] = set()
        renewed: set[int] = set()
        done_at: int | None = None
        doubt: errors.RheostatError | None = None
        region = self._regions.choose(passed) or 0
        while True:
            sent = False
            error: errors.RheostatError
            try:
                yield Take(region)
                before, after = self._around(region)
                bound = len(commands) * (self.dial.within_ms or 0) / 1000
                tail = [*commands, own("RHEO", "QUALITY"), own("RHEO", "SESSION", "GET"), *after]
                if writes:
                    yield from self._ready((yield from self._ask(before)), after)
                    sent = True
                    replies = yield Talk(tail, bound)
                else:
                    replies = yield from self._ask([*before, *tail], bound)
                    yield from self._ready(replies[: len(before)], [])
                    replies = replies[len(before) :]
                replies, error_of_one = yield from self._finish(replies, len(commands), region)
                if error_of_one is None:
                    return replies
                error, may = error_of_one, True
                again = error.is_passing and not writes or named and isinstance(error, (errors.Busy, errors.Unreachable, errors.Timeout))
                if isinstance(error, (errors.Unreachable, errors.Timeout)) and named:
                    done_at, doubt = region, error
            except NoConnection as why:
                self._regions.avoid(region)
                passed.add(region)
                error = errors.Unreachable(f"{self._regions.names[region]}: {why}", nothing_sent=done_at is None)
                may, again = done_at is not None, True
                following = self._regions.choose(passed) if done_at is None else None
                if following is not None:
                    region = following
                    continue
                passed.clear()
            except Lost as why:
                text = f"{self._regions.names[region]}: {why}"
                may = sent or done_at is not None
                error = errors.Timeout(text) if why.timed_out else errors.Unreachable(text, nothing_sent=not may)
                if sent:
                    done_at, doubt = region, error
                    if not named:
                        raise error from why
                # A connection of the pool may have been lost long ago, with its node; the next one is made anew.
                if not sent and region not in renewed and not why.timed_out:
                    renewed.add(region)
                    continue
                if not may:
                    self._regions.avoid(region)
                again = True
            except errors.RheostatError as refused:
                if doubt is None:
                    raise
                error, may, again = refused, True, False
            pause = tries.again() if again else None
            if pause is None:
                if named and may:
                    self._state.rename()
                if doubt is not None and not isinstance(error, errors.OF_ALL_TRIES):
                    raise doubt from error
                raise error
            yield Sleep(pause)
            if done_at is None:
                region = self._regions.choose(passed) or 0

    def _ask(self, commands: Sequence[Command], bound: float = 0.0) -> Steps[Any]:
        """The replies to what may be asked anywhere. A node that opens its data does nothing: it is as if no connection to it could be made."""
        try:
            return (yield Talk(commands, bound))
        except Lost as lost:
            if lost.opening:
                raise NoConnection(str(lost)) from lost
            raise

    def _ready(self, replies: Sequence[Any], after: list[Command]) -> Steps[None]:
        """Sees that the connection is the session's, else raises."""
        wrong = [errors.of_reply(reply) for reply in replies if isinstance(reply, redis.RedisError)]
        if not wrong:
            return
        if after and not isinstance(wrong[0], errors.Unauthenticated):
            yield Talk(after)
        yield Give()
        raise next((error for error in wrong if isinstance(error, errors.NotRheostat)), wrong[0])

    def _finish(self, replies: Sequence[Any], count: int, region: int) -> Steps[tuple[list[Any], errors.RheostatError | None]]:
        """Takes in what the replies say of the session; the replies to the commands, and the error if it was one command and failed."""
        mine = list(replies[:count])
        quality, token, *after = replies[count:]
        wrong = [reply for reply in (quality, token, *after) if isinstance(reply, redis.RedisError)]
        if wrong:
            # The connection is not given back: it is dropped.
            raise errors.ServerError(f"the session could not be told from the connection: {wrong[0]}")
        self._state.quality = _quality(quality)
        self._state.token = _text(token)
        yield Give()
        self._regions.reached(region)
        failed = errors.of_reply(mine[0]) if count == 1 and isinstance(mine[0], redis.RedisError) else None
        return mine, failed

    def one(self, *args: Word, writes: bool, read: Callable[[Any], T]) -> Steps[T]:
        replies = yield from self.perform([own(*args)], writes)
        return read(replies[0])

    def check(self) -> Steps[None]:
        yield from self.perform([], writes=False)

    def merge(self, token: str) -> Steps[None]:
        if token:
            yield from self.perform([own("RHEO", "SESSION", "MERGE", token)], writes=False)

    def get(self, key: Bytes) -> Steps[Read]:
        def read(reply: Any) -> Read:
            quality = self._state.quality
            return Read(reply, quality.level, quality.staleness_ms, quality.version, quality.achieved)

        return self.one("GET", key, writes=False, read=read)

    def put(self, key: Bytes, value: Word, expires_after: float | None) -> Steps[Version]:
        return self.one("SET", key, value, *_expiry(expires_after), writes=True, read=self._written)

    def put_if(self, key: Bytes, value: Word, condition: Condition, expires_after: float | None) -> Steps[Version | None]:
        expiry = _expiry(expires_after)
        if isinstance(condition, Value):
            args: tuple[Word, ...] = ("RHEO", "CAS", key, condition.expected, value, *expiry)
        else:
            args = ("SET", key, value, "NX" if isinstance(condition, Absent) else "XX", *expiry)
        return self.one(*args, writes=True, read=lambda reply: self._written(reply) if reply not in (None, 0) else None)

    def put_many(self, items: Iterable[tuple[Bytes, Word]]) -> Steps[Version]:
        words = [word for item in items for word in item]
        if not words:
            raise errors.Refused("nothing to write")
        return self.one("MSET", *words, writes=True, read=self._written)

    def delete(self, key: Bytes) -> Steps[bool]:
        return self.one("DEL", key, writes=True, read=lambda reply: bool(reply == 1))

    def read_transaction(self, keys: Iterable[Bytes]) -> Steps[Many]:
        names = list(keys)
        if not names:
            raise errors.Refused("a transaction of no keys")

        def read(reply: Any) -> Many:
            quality = self._state.quality
            return Many(list(reply), quality.level, quality.staleness_ms, quality.achieved)

        return self.one("MGET", *names, writes=False, read=read)

    def wait(self, data_centers: int, timeout: float) -> Steps[int]:
        return self.one("WAIT", data_centers, max(1, round(timeout * 1000)), writes=False, read=int)

    def siblings(self, key: Bytes) -> Steps[Siblings]:
        return self.one("RHEO", "SIBLINGS", key, writes=False, read=lambda reply: Siblings([v for v in reply[1] if v is not None], _text(reply[0])))

    def replace(self, key: Bytes, value: Word, context: str) -> Steps[str]:
        return self.one("RHEO", "PUT", key, value, "CONTEXT", context, writes=True, read=_text)

    def add_all(self, additions: Iterable[tuple[Bytes, int]], scope: str) -> Steps[list[int]]:
        words = [word for addition in additions for word in addition]
        if not words:
            raise errors.Refused("nothing to add")
        client, number = self._state.name()
        replies = yield from self.perform([own("RHEO", "COUNTER", "ADD", *words, scope, "ID", client, number)], writes=True, named=True)
        return replies[0] if isinstance(replies[0], list) else [replies[0]]

    def counter_create(self, key: Bytes, new: NewCounter) -> Steps[None]:
        words: list[Word] = []
        for name, bound in (("MIN", new.lower), ("MAX", new.upper)):
            words += [] if bound is None else [name, bound]
        words += ["VALUE", new.initial]
        words += ["PLACE", *new.placement] if new.placement else []
        return self.one("RHEO", "COUNTER", "CREATE", key, *words, writes=True, read=lambda _: None)

    def counter_look(self, key: Bytes) -> Steps[CounterView]:
        return self.one("RHEO", "COUNTER", "GET", key, writes=False, read=_view)

    def counter_move(self, key: Bytes, to: str | int, direction: str, amount: int) -> Steps[CounterView]:
        return self.one("RHEO", "COUNTER", "MOVE", key, to, amount, direction.upper(), writes=True, read=_view)

    def counter_reclaim(self, key: Bytes, gone: str | int) -> Steps[CounterView]:
        return self.one("RHEO", "COUNTER", "RECLAIM", key, gone, writes=True, read=_view)

    def _written(self, _reply: Any) -> Version:
        version = self._state.quality.version
        if version is None:
            raise errors.ServerError("the answer does not say which version was written")
        return version


def _expiry(seconds: float | None) -> tuple[Word, ...]:
    return () if seconds is None else ("PX", max(1, round(seconds * 1000)))


def region_names(pools: Sequence[Any]) -> list[str]:
    """Where the Redis clients' pools lead; refuses clients that cannot carry sessions."""
    names = []
    for pool in pools:
        known = getattr(pool, "connection_kwargs", None)
        if known is None:
            raise TypeError("give redis.Redis clients (redis.asyncio.Redis for AsyncClient), one for each region; any node of a region serves every key")
        name = known.get("client_name") or ""
        if str(name).startswith("rheo:") and "session=" in str(name):
            raise ValueError(f"client_name={name!r} makes all connections of the pool one session; leave it out, and each user has one of their own")
        names.append(known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}")
    if not names:
        raise ValueError("no region to connect to")
    return names


def databases(pools: Sequence[Any]) -> list[int]:
    """The keyspace that each pool's connections are in."""
    return [int(pool.connection_kwargs.get("db") or 0) for pool in pools]


def words(args: Sequence[Any]) -> tuple[Any, ...]:
    """A command as redis-py packs it: a name of several words is several words."""
    first = args[0]
    return (*first.split(" "), *args[1:]) if isinstance(first, str) and " " in first else tuple(args)


def pipeline(session: SessionCore, queued: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], transaction: bool) -> Steps[list[Any]]:
    """The replies of commands that were queued, as the server gave them; error replies are values."""
    commands = []
    for args, options in queued:
        fits(args)
        commands.append(own(*args) if transaction else Command(args, options))
    if not commands:
        return []
    writes = not all(is_read(command.args) for command in commands)
    if not transaction:
        # One that comes alone would raise its error.
        return (yield from session.perform([*commands, own("PING")], writes))[:-1]
    replies = yield from session.perform([own("MULTI"), *commands, Command(("EXEC",), {})], writes)
    queue_errors = [reply for reply in replies[1:-1] if isinstance(reply, redis.RedisError)]
    made = replies[-1]
    if isinstance(made, redis.RedisError):
        raise errors.of_reply(queue_errors[0] if queue_errors else made)
    return list(made)


def pipelined(replies: list[Any], queued: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], callbacks: Any, raise_on_error: bool) -> list[Any]:
    """Replies as redis-py's pipeline returns them; ``callbacks`` for those that have not been through them."""
    result = []
    for reply, (args, options) in zip(replies, queued):
        if isinstance(reply, redis.RedisError):
            reply = errors.of_reply(reply)
            if raise_on_error:
                raise reply
        elif args[0] in callbacks:
            options.pop("keys", None)
            reply = callbacks[args[0]](reply, **options)
        result.append(reply)
    return result


def lost(error: BaseException) -> Exception:
    """What an exception on a connection means."""
    return Lost(error)


def unmade(error: Exception) -> Exception:
    """What an exception in making a connection means."""
    if isinstance(error, redis.AuthenticationError):
        return errors.Unauthenticated(str(error))
    if isinstance(error, redis.exceptions.MaxConnectionsError) or str(error) in ("Too many connections", "No connection available."):
        return errors.Busy(f"the pool has no connection left: {error}")
    return NoConnection(str(error))
