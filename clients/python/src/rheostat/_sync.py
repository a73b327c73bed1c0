"""Sessions over ``redis.Redis``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Callable, TypeVar

import redis
import redis.client

from . import _core as core
from . import _errors as errors
from ._core import Command, Give, Sleep, Steps, Take, Talk
from ._types import Bytes, Condition, CounterView, Dial, Many, NewCounter, Options, Quality, Read, Siblings, Version, Word

T = TypeVar("T")

_current: ContextVar[Any] = ContextVar("rheostat_session", default=None)


def current_session() -> Session | None:
    """The session that this thread's commands belong to, where :meth:`Session.as_current` or the middleware has set one."""
    session = _current.get()
    return session if isinstance(session, Session) else None


class Client:
    """Your Redis clients, one for each region, the nearest first. Threads may share it."""

    def __init__(self, regions: redis.Redis | Sequence[redis.Redis], options: Options = Options()) -> None:
        """``regions``: any node of a region serves every key, so one client for each is enough. They keep their pools, timeouts, TLS and passwords."""
        self._redis = [regions] if isinstance(regions, redis.Redis) else list(regions)
        pools = [one.connection_pool for one in self._redis]
        self._regions = core.Regions(core.region_names(pools), options)
        self._databases = core.databases(pools)
        #: A ``redis.Redis`` whose commands are part of the current session; without one they go to the first region as they are.
        self.redis: redis.Redis = SessionRedis(self, None)

    def session(self, keyspace: str | int | None = None) -> Session:
        """A new session in ``keyspace`` (name or number); nothing is that of the Redis clients."""
        return self.resume(keyspace, "")

    def resume(self, keyspace: str | int | None, token: str) -> Session:
        """The session that ``token`` stands for. A token that does not belong here is refused by the first operation."""
        return Session(self, keyspace, core.State(token), Dial(), threading.Lock())


class Session:
    """What one user has seen and written in one keyspace, and the operations on it. One operation goes on at a time: threads that share a session wait for each other.

    An operation that fails or is given up leaves the token as it was: what it may have written is then not part of the session.
    All operations raise the errors of this package (:class:`RheostatError`).
    """

    def __init__(self, client: Client, keyspace: str | int | None, state: core.State, dial: Dial, lock: Any) -> None:
        self._client = client
        self._state = state
        self._lock = lock
        self._core = core.SessionCore(client._regions, client._databases, keyspace, state, dial)

    @property
    def redis(self) -> redis.Redis:
        """A ``redis.Redis`` whose commands are part of this session."""
        return SessionRedis(self._client, self)

    @property
    def keyspace(self) -> str | int | None:
        """The keyspace's name or number."""
        return self._core.keyspace

    @property
    def token(self) -> str:
        """The session's token; empty before its first operation."""
        return self._state.token

    @property
    def quality(self) -> Quality:
        """How good the session's last answer was."""
        return self._state.quality

    @property
    def dial(self) -> Dial:
        """What operations ask for beside."""
        return self._core.dial

    def headers(self) -> dict[str, str]:
        """The header for a web request to another service, or for the answer to a browser."""
        return self._core.headers()

    def at(self, client: Client) -> Session:
        """A session that has seen the same, at another client: of other regions, or of these in another order. From now on they are two."""
        return Session(client, self.keyspace, core.State(self.token), self.dial, threading.Lock())

    def with_dial(self, dial: Dial | None = None, **changes: Any) -> Session:
        """This same session, asking for something else: ``session.with_dial(level="eventual").get(key)``."""
        return Session(self._client, self.keyspace, self._state, replace(dial or self.dial, **changes), self._lock)

    def set_dial(self, dial: Dial) -> None:
        """Sets what operations ask for beside."""
        self._core.dial = dial

    def set_level(self, level: str | None) -> None:
        """Sets the level that operations ask for; nothing is the keyspace's own."""
        self._core.dial = replace(self.dial, level=level)

    def set_service_level(self, service_level: str | None) -> None:
        """Sets the service level that reads are served under: a name, or entries from best to least; ``none`` is none at all."""
        self._core.dial = replace(self.dial, service_level=service_level)

    @contextmanager
    def as_current(self) -> Iterator[Session]:
        """Within this, commands of :attr:`Client.redis` belong to the session."""
        before = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(before)

    def _set_current(self) -> None:
        _current.set(self)

    def check(self) -> None:
        """Sees that the servers take this session's token and what it asks for."""
        self._take(self._core.check())

    def merge(self, token: str) -> None:
        """Takes in what the session of ``token`` has seen and written: from now on this session sees at least that."""
        self._take(self._core.merge(token))

    def get(self, key: Bytes) -> Read:
        """The value of ``key``."""
        return self._take(self._core.get(key))

    def put(self, key: Bytes, value: Word, expires_after: float | None = None) -> Version:
        """Writes ``value`` to ``key``, for so many seconds or for ever. Never sent twice."""
        return self._take(self._core.put(key, value, expires_after))

    def put_if(self, key: Bytes, value: Word, condition: Condition, expires_after: float | None = None) -> Version | None:
        """Writes if the key is as ``condition`` says, in a keyspace that decides such writes; nothing is returned where it is not."""
        return self._take(self._core.put_if(key, value, condition, expires_after))

    def put_many(self, items: Iterable[tuple[Bytes, Word]]) -> Version:
        """Writes several keys of one partition, which appear together in every data center."""
        return self._take(self._core.put_many(items))

    def delete(self, key: Bytes) -> bool:
        """Deletes ``key``; whether it was there."""
        return self._take(self._core.delete(key))

    def read_transaction(self, keys: Iterable[Bytes]) -> Many:
        """Values of ``keys``, of any partitions, from one snapshot."""
        return self._take(self._core.read_transaction(keys))

    def wait(self, data_centers: int, timeout: float) -> int:
        """Waits until so many other data centers have this session's writes on disk, for at most ``timeout`` seconds; how many have."""
        return self._take(self._core.wait(data_centers, timeout))

    def siblings(self, key: Bytes) -> Siblings:
        """All values of ``key`` that stand side by side; in keyspaces of protocol ``quorum``."""
        return self._take(self._core.siblings(key))

    def replace(self, key: Bytes, value: Word, context: str) -> str:
        """Writes in the place of the values that ``context`` says, and of no others; the new context."""
        return self._take(self._core.replace(key, value, context))

    def resolve(self, key: Bytes, resolve: Callable[[list[bytes]], Bytes]) -> bytes | None:
        """The value of ``key``. Where several stand side by side, ``resolve`` makes one of them, which is written in their place."""
        seen = self.siblings(key)
        if len(seen.values) < 2:
            return seen.values[0] if seen.values else None
        value = resolve(seen.values)
        self.replace(key, value, seen.context)
        return value.encode() if isinstance(value, str) else value

    def counter(self, key: Bytes) -> Counter:
        """The counter at ``key``. Updates have scope local: they are decided at once, with the rights of the data center that is asked."""
        return Counter(self, key, "LOCAL")

    def add_all(self, additions: Iterable[tuple[Bytes, int]], scope: str = "LOCAL") -> list[int]:
        """Adds to several counters of one partition, to all or to none; less than 0 decrements. Sent again as :meth:`Counter.add`."""
        return self._take(self._core.add_all(additions, scope))

    def _take(self, steps: Steps[T]) -> T:
        """Takes the steps of one operation."""
        pool: Any = None
        connection: Any = None
        used: redis.Redis | None = None
        with self._lock:
            try:
                result: Any = None
                thrown: Exception | None = None
                while True:
                    step = steps.send(result) if thrown is None else steps.throw(thrown)
                    result, thrown = None, None
                    if isinstance(step, Take):
                        if connection is not None:
                            pool, connection = _drop(pool, connection)
                        used = self._client._redis[step.region]
                        pool = used.connection_pool
                        try:
                            connection = pool.get_connection()
                        except (redis.RedisError, OSError) as error:
                            thrown = core.unmade(error)
                    elif isinstance(step, Talk):
                        try:
                            result = _talk(used, connection, step)
                        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                            thrown = core.lost(error)
                    elif isinstance(step, Give):
                        pool, connection = pool.release(connection), None
                    elif isinstance(step, Sleep):
                        if connection is not None:
                            pool, connection = _drop(pool, connection)
                        time.sleep(step.seconds)
            except StopIteration as done:
                value: T = done.value
                return value
            finally:
                if connection is not None:
                    _drop(pool, connection)

    def _execute(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """One command of a ``redis.Redis``, with a reply as that has it."""
        core.fits(args)
        replies = self._take(self._core.perform([Command(args, options)], writes=not core.is_read(args)))
        return replies[0]


def _drop(pool: Any, connection: Any) -> tuple[None, None]:
    """A connection in the middle of something is closed; it may be opened anew."""
    connection.disconnect()
    pool.release(connection)
    return None, None


def _talk(used: Any, connection: Any, talk: core.Talk) -> list[Any]:
    commands = talk.commands
    connection.send_packed_command(connection.pack_commands([core.words(command.args) for command in commands]), check_health=False)
    # What the server is asked to wait comes beside the time that a reply may take. Where an exception leaves it so, the connection is closed.
    more = core.waits(talk)
    waits_in = getattr(connection, "_sock", None) if more else None
    usual = None if waits_in is None else waits_in.gettimeout()
    if waits_in is not None and usual is not None:
        waits_in.settimeout(usual + more)
    replies: list[Any] = []
    for command in commands:
        try:
            if command.parse is None:
                replies.append(connection.read_response(disable_decoding=True))
            else:
                replies.append(used.parse_response(connection, command.args[0], **command.parse))
        except redis.ResponseError as error:
            replies.append(error)
        except redis.AuthenticationError as error:
            # redis-py has closed the connection. The next one shows the password that is known then.
            raise redis.ConnectionError(str(error)) from error
    if waits_in is not None:
        waits_in.settimeout(usual)
    return replies


class Counter:
    """One counter, through a session."""

    def __init__(self, session: Session, key: Bytes, scope: str) -> None:
        self._session = session
        self._key = key
        self._scope = scope

    def global_(self) -> Counter:
        """Updates fetch the rights that are missing from other data centers."""
        return Counter(self._session, self._key, "GLOBAL")

    def local(self) -> Counter:
        """Updates use the rights of the data center that is asked, and no others."""
        return Counter(self._session, self._key, "LOCAL")

    def create(self, counter: NewCounter = NewCounter()) -> None:
        """Makes the counter; refused when the key is there."""
        self._session._take(self._session._core.counter_create(self._key, counter))

    def add(self, delta: int) -> int:
        """Adds ``delta``, or decrements if it is less than 0; the value afterwards, as known in the data center that was asked.

        Raises :class:`NoRights` if the bounds do not allow it with the rights that the scope can use. Sent again at the same region also where the first try may have been made:
        the update has a name, under which it is made once."""
        return self._session.add_all([(self._key, delta)], self._scope)[0]

    def transfer(self, to: Bytes, amount: int) -> tuple[int, int]:
        """Takes ``amount`` from this counter and adds it to the one at ``to``, of the same partition: both or neither. Both values afterwards."""
        if amount < 1:
            raise errors.Refused(f"{amount} cannot be transferred; the amount is at least 1")
        here, there = self._session.add_all([(self._key, -amount), (to, amount)], self._scope)
        return here, there

    def look(self) -> CounterView:
        """The counter as it is known in the data center that is asked."""
        return self._session._take(self._session._core.counter_look(self._key))

    def move_rights(self, to: str | int, direction: str, amount: int) -> CounterView:
        """Moves ``amount`` rights (``down`` or ``up``) of the data center that is asked to the one called ``to``."""
        return self._session._take(self._session._core.counter_move(self._key, to, direction, amount))

    def reclaim(self, gone: str | int) -> CounterView:
        """Takes over the rights of a data center that is gone for ever."""
        return self._session._take(self._session._core.counter_reclaim(self._key, gone))


class SessionRedis(redis.Redis):
    """A ``redis.Redis`` whose commands are part of a session; where it has none, of the current one; where there is none, of none."""

    def __init__(self, client: Client, session: Session | None) -> None:
        super().__init__(connection_pool=client._redis[0].connection_pool)
        self._rheostat_session = session

    def _rheostat(self) -> Session | None:
        return self._rheostat_session or current_session()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        session = self._rheostat()
        if session is None:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        return session._execute(args, options)

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> redis.client.Pipeline:
        session = self._rheostat()
        plain = super().pipeline(transaction, shard_hint)
        return plain if session is None else SessionPipeline(session, plain, bool(transaction))

    def pubsub(self, **options: Any) -> Any:
        raise errors.Refused("there are no channels to publish or subscribe to")


class SessionPipeline(redis.client.Pipeline):
    """A pipeline whose commands are part of a session."""

    def __init__(self, session: Session, plain: redis.client.Pipeline, transaction: bool) -> None:
        super().__init__(plain.connection_pool, plain.response_callbacks, transaction, None)
        self._rheostat_session = session
        self._rheostat_transaction = transaction

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        raise errors.Refused("WATCH needs a connection of its own; Session.put_if writes under a condition")

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        queued = [(tuple(args), dict(options)) for args, options in self.command_stack]
        self.reset()
        replies = self._rheostat_session._take(core.pipeline(self._rheostat_session._core, queued, self._rheostat_transaction))
        return core.pipelined(replies, queued, self.response_callbacks if self._rheostat_transaction else {}, raise_on_error)
