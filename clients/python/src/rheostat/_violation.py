"""Violations that monitors tell: what they are, and the subscription without input and output, as steps that the sync and the async one take in their own way."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Union

import redis

from . import _errors as errors
from ._core import _LONGEST_WAIT, Lost, NoConnection, Regions, _map, _text
from ._types import Version

#: The first pause between two rounds through the regions, in seconds; each further one is twice as long, up to the longest.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Evidence:
    """One of the states that violate a predicate together."""

    #: The key.
    key: bytes
    #: Its value, or how it begins; absent if the key was.
    value: bytes | None
    #: The value's version; absent if it was never written.
    version: Version | None
    #: The data center where it stood.
    data_center: str
    #: Since when, on that server's clock: milliseconds since the Unix epoch, and a counter.
    from_: tuple[int, int]
    #: Until when; absent if it stands, as far as is known.
    until: tuple[int, int] | None


@dataclass(frozen=True)
class Violation:
    """A violation of a predicate. What was possible and turns out to be certain is told again, under the same node and number."""

    #: The node whose monitor says it.
    node: str
    #: Its number there.
    number: int
    #: When it was said, in milliseconds since the Unix epoch.
    at_ms: int
    #: The keyspace.
    keyspace: str
    #: The predicate; of a pattern with what stands in its braces, as ``name[17,4]``.
    monitor: str
    #: Whether there was a moment at which all states stood; otherwise there may have been.
    certain: bool
    #: A moment at which these states did not violate it yet: milliseconds since the Unix epoch, and a counter.
    not_before: tuple[int, int]
    #: The states that violate it together.
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Missed:
    """Violations may have been missed."""

    #: Why.
    why: str


@dataclass(frozen=True)
class Silence:
    """The connection was lost: from now on nobody tells anything, until :class:`Missed` says that somebody does again."""

    #: Why.
    why: str


#: What a subscription tells.
Said = Union[Violation, Missed, Silence]


def _time(text: Any) -> tuple[int, int]:
    millis, _, counter = _text(text).partition(".")
    return int(millis), int(counter)


def _evidence(reply: Any) -> Evidence:
    one = _map(reply)
    version, until = one["version"], one["until"]
    return Evidence(
        one["key"],
        one["value"],
        None if version is None else Version.parse(_text(version)),
        _text(one["data_center"]),
        _time(one["from"]),
        None if until is None else _time(until),
    )


def of_push(reply: Any) -> Said:
    """What a pushed message says. One that cannot be understood may have been a violation."""
    try:
        said = _map(reply)
        what = _text(said["what"])
        if what == "gap":
            return Missed(_text(said["why"]))
        if what not in ("violated", "possible"):
            raise ValueError(what)
        return Violation(
            _text(said["node"]),
            said["number"],
            said["at_ms"],
            _text(said["keyspace"]),
            _text(said["monitor"]),
            what == "violated",
            _time(said["not_before"]),
            tuple(_evidence(one) for one in said["evidence"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        return Missed(f"a message that this client does not understand: {why}")


@dataclass(frozen=True)
class Open:
    """Step: subscribe on a new connection to this region. Throws :class:`NoConnection`, :class:`Lost`, or the server's refusal."""

    region: int


@dataclass(frozen=True)
class Hear:
    """Step: the next message or reply; nothing if none comes until this moment. Throws :class:`Lost`."""

    until: float


@dataclass(frozen=True)
class Ask:
    """Step: ask whether somebody is there. Throws :class:`Lost`."""


@dataclass(frozen=True)
class Drop:
    """Step: close the connection."""


@dataclass(frozen=True)
class Rest:
    """Step: pause until this moment."""

    until: float


@dataclass(frozen=True)
class Tell:
    """Step: this is said; nothing, when the subscription has begun."""

    said: Said | None


Step = Union[Open, Hear, Ask, Drop, Rest, Tell]


def listening(regions: Regions) -> Generator[Step, Any, None]:
    """A subscription, which ends with an error only: at first with any, later with a refusal."""
    region = yield from _open(regions)
    yield Tell(None)
    while True:
        lost = yield from _hear(min(regions.options.silence_after, _LONGEST_WAIT))
        yield Drop()
        if lost.timed_out:
            # Its connections stay, and nobody answers: others are asked first.
            regions.avoid(region)
        yield Tell(Silence(f"{regions.names[region]}: {lost}"))
        pause = FIRST_PAUSE
        while True:
            try:
                region = yield from _open(regions)
                break
            except (errors.Unreachable, errors.Timeout, errors.Busy):
                # So that not all come back at one moment.
                yield Rest(time.monotonic() + pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE)
        yield Tell(Missed("the node that tells could not be reached for a while"))


def _open(regions: Regions) -> Generator[Step, Any, int]:
    """Subscribes at the first region that can be reached and has a place."""
    passed: set[int] = set()
    error: errors.RheostatError | None = None
    while (region := regions.choose(passed)) is not None:
        try:
            yield Open(region)
            regions.reached(region)
            return region
        except (errors.Busy, errors.Unreachable, errors.Timeout) as why:
            error = why
        except NoConnection as why:
            regions.avoid(region)
            error = errors.Unreachable(f"{regions.names[region]}: {why}", nothing_sent=True)
        except Lost as why:
            regions.avoid(region)
            text = f"{regions.names[region]}: {why}"
            error = errors.Timeout(text) if why.timed_out else errors.Unreachable(text, nothing_sent=True)
        passed.add(region)
    assert error is not None
    raise error


def _hear(silence_after: float) -> Generator[Step, Any, Lost]:
    """Tells what comes; why it comes no longer."""
    heard, asked = time.monotonic(), False
    while True:
        try:
            got = yield Hear(heard + silence_after / 2)
            if got is None and asked:
                return Lost(TimeoutError(f"nothing was heard for {silence_after:g} s"))
            # Who is away for long between two messages comes back to an answer that waits.
            heard, asked = time.monotonic(), got is None
            if got is None:
                yield Ask()
        except Lost as lost:
            return lost
        if isinstance(got, list) and len(got) == 2 and _text(got[0]) == "monitor":
            yield Tell(of_push(got[1]))


def connection_options(pool: Any, retry: Any, silence_after: float) -> dict[str, Any]:
    """The options of a pool's connections, for one that hears pushes and is made anew by us."""
    options = dict(pool.connection_kwargs)
    if not options.get("socket_timeout"):
        # Of a message that has begun; between messages nothing has to come.
        options["socket_timeout"] = min(silence_after, _LONGEST_WAIT)
    options.update(protocol=3, retry=retry, retry_on_error=[], health_check_interval=0)
    # What listens to the server's maintenance belongs to the pool.
    for name in [name for name in options if "maint_notifications" in name]:
        del options[name]
    return options


def of_error(error: Exception) -> Exception:
    """What an exception of subscribing means."""
    if isinstance(error, errors.RheostatError):
        return error
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return Lost(error)
    if isinstance(error, redis.AuthenticationError) or isinstance(error, redis.ResponseError):
        made = errors.of_reply(error)
        if type(made) is errors.Refused and "hello" in str(made).lower():
            return errors.Refused(f"the server does not speak RESP3, in which monitors are heard: {made}")
        return made
    if "RESP version" in str(error):
        return errors.Refused(f"the server does not speak RESP3, in which monitors are heard: {error}")
    return NoConnection(str(error))


def command(monitor: str) -> Sequence[str]:
    """The command that subscribes to a predicate, or to all."""
    return ("RHEO", "MONITOR", "LISTEN", *([monitor] if monitor else []))
