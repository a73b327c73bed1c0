"""Subscriptions to violations: over ``redis.Redis`` and over ``redis.asyncio.Redis``."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import redis
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import _core as core
from . import _errors as errors
from . import _violation as v
from ._aio import AsyncClient
from ._sync import Client
from ._violation import Ask, Drop, Hear, Missed, Open, Rest, Said, Tell

_LOST = (redis.RedisError, OSError)


class Violations:
    """Violations that monitors tell, one after the other, on a connection of their own that the regions' Redis clients have the options for::

        with Violations.listen(client, "nolap") as violations:
            for said in violations:
                ...

    Another region is asked when the first cannot be reached: :class:`Silence` says that the connection was lost, and :class:`Missed` that somebody tells again and that
    violations may have been missed meanwhile. There is no thread: what is not read yet waits in the socket, and the server counts what is too much for that, and says so as
    :class:`Missed`. Any thread may close it.
    """

    def __init__(self, client: Client, monitor: str) -> None:
        self._client = client
        self._monitor = monitor
        self._connection: Any = None
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._failed: errors.RheostatError | None = None
        #: How often violations may have been missed so far.
        self.missed = 0
        self._steps = v.listening(client._regions)
        self._step: v.Step = next(self._steps)

    @classmethod
    def listen(cls, client: Client, monitor: str = "") -> Violations:
        """Of the predicate ``monitor``, or of all, from now on.

        Raises :class:`Unauthenticated` if the user may not (it takes the role ``operate``), :class:`NotRheostat` or :class:`Refused` if the server knows no monitors or no
        RESP3, :class:`Busy` if too many listen, :class:`Unreachable` or :class:`Timeout` if no region can be reached."""
        made = cls(client, monitor)
        try:
            made.next()
        except BaseException:
            made.close()
            raise
        return made

    def next(self, timeout: float | None = None) -> Said | None:
        """What is told next; nothing when ``timeout`` seconds have passed or the subscription is closed.

        While nobody can be reached the regions are asked again and again. What a server refuses then is raised as by :meth:`listen`, and ends the subscription."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._turn:
            try:
                while not self._closed.is_set():
                    step = self._step
                    result: Any = None
                    thrown: Exception | None = None
                    if isinstance(step, Tell):
                        self._step = self._steps.send(None)
                        self.missed += isinstance(step.said, Missed)
                        return step.said
                    try:
                        if isinstance(step, (Hear, Rest)):
                            end = step.until if until is None else min(step.until, until)
                            result = self._hear(end) if isinstance(step, Hear) else self._closed.wait(max(end - time.monotonic(), 0.0))
                            if not result and end < step.until:
                                return None
                        elif isinstance(step, Open):
                            self._open(step.region)
                        elif isinstance(step, Ask):
                            self._connection.send_command("PING", check_health=False)
                        else:
                            self._drop()
                    except (core.NoConnection, core.Lost, errors.RheostatError) as error:
                        thrown = error
                    except _LOST as error:
                        thrown = core.lost(error)
                    if not self._closed.is_set():
                        self._step = self._steps.send(result) if thrown is None else self._steps.throw(thrown)
                self._drop()
                if self._failed is not None:
                    raise self._failed
                return None
            except errors.RheostatError as error:
                self._failed = error
                self._closed.set()
                self._drop()
                raise

    def _open(self, region: int) -> None:
        pool = self._client._redis[region].connection_pool
        options = v.connection_options(pool, Retry(NoBackoff(), 0), self._client._regions.options.silence_after)
        try:
            self._connection = pool.connection_class(**options)
            self._connection.connect()
            self._connection.send_command(*v.command(self._monitor), check_health=False)
            self._connection.read_response(disable_decoding=True)
        except Exception as error:
            self._drop()
            raise v.of_error(error) from error

    def _hear(self, until: float) -> Any:
        if not self._connection.can_read(timeout=max(until - time.monotonic(), 0.0)):
            return None
        return self._connection.read_response(disable_decoding=True, disconnect_on_error=False, push_request=True)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        """Ends the subscription, and the wait of whoever waits for what comes next."""
        self._closed.set()
        waits_in = getattr(self._connection, "_sock", None)
        if waits_in is not None:
            try:
                waits_in.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if self._turn.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._turn.release()

    def __iter__(self) -> Iterator[Said]:
        return self

    def __next__(self) -> Said:
        said = self.next()
        if said is None:
            raise StopIteration
        return said

    def __enter__(self) -> Violations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncViolations:
    """As :class:`Violations`, to be awaited::

        async with await AsyncViolations.listen(client, "nolap") as violations:
            async for said in violations:
                ...

    A task that waits for what comes next may be cancelled; nothing is lost by that.
    """

    def __init__(self, client: AsyncClient, monitor: str) -> None:
        self._client = client
        self._monitor = monitor
        self._connection: Any = None
        self._turn = asyncio.Lock()
        self._closed = asyncio.Event()
        self._failed: errors.RheostatError | None = None
        #: How often violations may have been missed so far.
        self.missed = 0
        self._steps = v.listening(client._regions)
        self._step: v.Step = next(self._steps)

    @classmethod
    async def listen(cls, client: AsyncClient, monitor: str = "") -> AsyncViolations:
        """Of the predicate ``monitor``, or of all, from now on. Raises what :meth:`Violations.listen` does."""
        made = cls(client, monitor)
        try:
            await made.next()
        except BaseException:
            await made.close()
            raise
        return made

    async def next(self, timeout: float | None = None) -> Said | None:
        """What is told next, as :meth:`Violations.next` has it."""
        until = None if timeout is None else time.monotonic() + timeout
        async with self._turn:
            try:
                while not self._closed.is_set():
                    step = self._step
                    result: Any = None
                    thrown: Exception | None = None
                    if isinstance(step, Tell):
                        self._step = self._steps.send(None)
                        self.missed += isinstance(step.said, Missed)
                        return step.said
                    try:
                        if isinstance(step, (Hear, Rest)):
                            end = step.until if until is None else min(step.until, until)
                            result = await (self._hear(end) if isinstance(step, Hear) else self._rest(end))
                            if not result and end < step.until:
                                return None
                        elif isinstance(step, Open):
                            await self._open(step.region)
                        elif isinstance(step, Ask):
                            await self._connection.send_command("PING", check_health=False)
                        else:
                            await self._drop()
                    except (core.NoConnection, core.Lost, errors.RheostatError) as error:
                        thrown = error
                    except _LOST as error:
                        thrown = core.lost(error)
                    if not self._closed.is_set():
                        self._step = self._steps.send(result) if thrown is None else self._steps.throw(thrown)
                await self._drop()
                if self._failed is not None:
                    raise self._failed
                return None
            except errors.RheostatError as error:
                self._failed = error
                self._closed.set()
                await self._drop()
                raise

    async def _open(self, region: int) -> None:
        pool = self._client._redis[region].connection_pool
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        options = v.connection_options(pool, retry, self._client._regions.options.silence_after)
        try:
            self._connection = pool.connection_class(**options)
            await self._connection.connect()
            await self._connection.send_command(*v.command(self._monitor), check_health=False)
            await self._connection.read_response(disable_decoding=True)
        except BaseException as error:
            await self._drop()
            if isinstance(error, Exception):
                raise v.of_error(error) from error
            raise

    async def _hear(self, until: float) -> Any:
        # Without any time nothing would be looked at.
        wait = max(until - time.monotonic(), 0.001)
        return await self._connection.read_response(disable_decoding=True, timeout=wait, disconnect_on_error=False, push_request=True)

    async def _rest(self, until: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), max(until - time.monotonic(), 0.001))
        except asyncio.TimeoutError:
            pass

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Ends the subscription, and the wait of whoever waits for what comes next."""
        self._closed.set()
        await self._drop()

    def __aiter__(self) -> AsyncIterator[Said]:
        return self

    async def __anext__(self) -> Said:
        said = await self.next()
        if said is None:
            raise StopAsyncIteration
        return said

    async def __aenter__(self) -> AsyncViolations:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
