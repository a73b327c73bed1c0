"""Why an operation failed. Each error is one of redis-py's as well, so that code which catches those goes on doing so."""

from __future__ import annotations

import re

import redis


class RheostatError(redis.RedisError):
    """What all errors of this package are."""

    #: Whether the same read, sent again, may succeed.
    is_passing = False


class Refused(RheostatError, redis.ResponseError):
    """The request is malformed, or the keyspace does not serve it. Nothing was changed."""


class NotRheostat(Refused):
    """The server does not know ``RHEO``: it is a Redis, not a Rheostat."""


class TokenError(RheostatError, redis.ResponseError):
    """The session's token is damaged or forged, does not belong to this cluster or keyspace, or was signed too long ago. Nothing was changed."""


class NoRights(RheostatError, redis.ResponseError):
    """A counter would leave its bounds, with the rights that the update could use. Nothing was changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        found = _RIGHTS.search(message)
        #: The counter.
        self.key: str = found["key"] if found else ""
        #: Its value as known in the data center that answered.
        self.value: int | None = int(found["value"]) if found else None
        #: Which rights are missing: ``down`` or ``up``.
        self.direction: str | None = ("down" if found["verb"] == "decrement" else "up") if found else None
        #: How many rights are needed.
        self.needed: int | None = int(found["needed"]) if found else None
        #: How many rights that data center has.
        self.here: int | None = int(found["here"]) if found else None
        #: How many rights the others have, as known there.
        self.elsewhere: int | None = int(found["elsewhere"]) if found else None


_RIGHTS = re.compile(
    r"counter (?P<key>.*) is at (?P<value>-?\d+) and needs (?P<needed>\d+) rights to (?P<verb>decrement|increment); "
    r"here are (?P<here>\d+), elsewhere (?P<elsewhere>\d+)",
    re.DOTALL,
)


class Unauthenticated(RheostatError, redis.AuthenticationError):
    """The password is missing or wrong, or the user may not do this. Nothing was changed."""


class Busy(RheostatError, redis.ResponseError):
    """The server has too much to do, or the pool has no connection left. Nothing was changed."""

    is_passing = True


class Timeout(RheostatError, redis.TimeoutError):
    """The deadline passed. A write may have happened."""


class Unreachable(RheostatError, redis.ConnectionError):
    """No region can be reached, or the connection was lost. A write may have happened, unless :attr:`nothing_sent`."""

    is_passing = True

    def __init__(self, message: str, *, nothing_sent: bool = False) -> None:
        super().__init__(message)
        #: Whether it is certain that nothing was changed.
        self.nothing_sent = nothing_sent


class ServerError(RheostatError, redis.ResponseError):
    """The server's store failed, or it answered something that this client does not understand. A write may have happened."""


#: Errors of a named update's last try that hold for the tries before it as well. Any other one says only that this try has changed nothing.
OF_ALL_TRIES = (Timeout, Unreachable, ServerError, NoRights)


def of_reply(error: redis.RedisError) -> RheostatError:
    """An error reply, as one of ours."""
    if isinstance(error, RheostatError):
        return error
    text = str(error)
    code = getattr(error, "status_code", None)
    if not code:
        first, _, rest = text.partition(" ")
        code, text = (first, rest) if first.isupper() else ("", text)
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.NoPermissionError)) or code in ("NOAUTH", "WRONGPASS", "NOPERM"):
        return Unauthenticated(text)
    if isinstance(error, redis.exceptions.ClusterDownError) or code == "CLUSTERDOWN":
        return Unreachable(text)
    if code == "SESSION":
        return TokenError(text)
    if code == "NORIGHTS":
        return NoRights(text)
    if code == "BUSY":
        return Busy(text)
    if code in ("TIMEOUT", "NOREPLICAS"):
        return Timeout(text)
    if text.lower().startswith(("unknown command 'rheo'", "unknown command `rheo`")):
        return NotRheostat(f"the server does not know RHEO, so it is no Rheostat: {text}")
    if code in ("", "ERR", "CROSSSLOT", "EXECABORT", "NOPROTO", "WRONGTYPE"):
        return Refused(text)
    return ServerError(f"{code} {text}")
