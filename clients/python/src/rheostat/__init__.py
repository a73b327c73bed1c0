"""Rheostat for redis-py: sessions that go along with a user, levels for each call, counters with bounds. Start at :class:`Client` or :class:`AsyncClient`."""

from ._aio import AsyncClient, AsyncCounter, AsyncSession, current_async_session
from ._core import SESSION_HEADER
from ._errors import Busy, NoRights, NotRheostat, Refused, RheostatError, ServerError, Timeout, TokenError, Unauthenticated, Unreachable
from ._listen import AsyncViolations, Violations
from ._sync import Client, Counter, Session, current_session
from ._types import (
    Absent,
    Achieved,
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
)
from ._violation import Evidence, Missed, Said, Silence, Violation
from .web import SessionAsgi, SessionWsgi

__all__ = [
    "Absent", "Achieved", "AsyncClient", "AsyncCounter", "AsyncSession", "AsyncViolations", "Busy", "Client", "Condition", "Counter", "CounterView", "Dial",
    "Evidence", "Many", "Missed", "NewCounter", "NoRights", "NotRheostat", "Options", "Present", "Quality", "Read", "Refused", "RheostatError", "Rights",
    "SESSION_HEADER", "Said", "ServerError", "Session", "SessionAsgi", "SessionWsgi", "Siblings", "Silence", "Timeout", "TokenError", "Unauthenticated",
    "Unreachable", "Value", "Version", "Violation", "Violations", "current_async_session", "current_session",
]  # fmt: skip
