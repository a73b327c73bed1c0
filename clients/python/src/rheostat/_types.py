"""What operations ask for and return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

#: What redis-py takes as a key or a value.
Bytes = Union[bytes, str]
#: One word of a command.
Word = Union[bytes, str, int, float]


@dataclass(frozen=True)
class Dial:
    """What operations ask for beside. What is not said is the keyspace's own."""

    #: ``eventual``, ``session``, ``causal``, ``local``, ``strong``, or guarantees with ``+`` between them.
    level: str | None = None
    #: How a read-only transaction finds its snapshot: ``auto``, ``coordinated``, ``predicted``.
    strategy: str | None = None
    #: How stale a read may be, in milliseconds; until it is fresh enough, it waits.
    fresh_ms: int | None = None
    #: How long an operation may wait at its partition server, in milliseconds.
    within_ms: int | None = None
    #: A service level's name or entries, best first, as in ``strong 200ms; causal 1s 20ms; eventual``; ``none`` is none at all.
    service_level: str | None = None
    #: How many replicas are asked, must answer a read, must have a write; in keyspaces of protocol ``quorum``.
    quorum: tuple[int, int, int] | None = None
    #: The checking groups of reads, in keyspaces of protocol ``adaptive``.
    groups: tuple[int, ...] | None = None

    def before(self) -> list[tuple[Word, ...]]:
        """The commands that make a connection ask for this."""
        commands: list[tuple[Word, ...]] = []
        for name, value in (("LEVEL", self.level), ("STRATEGY", self.strategy), ("FRESH", self.fresh_ms), ("WITHIN", self.within_ms), ("SLA", self.service_level)):
            if value is not None:
                commands.append(("RHEO", name, value))
        if self.quorum is not None:
            commands.append(("RHEO", "QUORUM", *self.quorum))
        if self.groups is not None:
            commands.append(("RHEO", "GROUPS", *self.groups))
        return commands

    def after(self) -> list[tuple[Word, ...]]:
        """The commands that take it back."""
        usual = {"LEVEL": "DEFAULT", "STRATEGY": "AUTO", "FRESH": "NONE", "WITHIN": "NONE", "SLA": "DEFAULT", "QUORUM": "DEFAULT", "GROUPS": "AUTO"}
        return [("RHEO", str(command[1]), usual[str(command[1])]) for command in self.before()]


@dataclass(frozen=True, order=True)
class Version:
    """A version's name."""

    #: When it was written, on its writer's clock: milliseconds since the Unix epoch.
    millis: int
    #: The counter within the millisecond.
    counter: int
    #: The data center where it was written.
    origin: str

    def __str__(self) -> str:
        return f"{self.millis}.{self.counter}@{self.origin}"

    @staticmethod
    def parse(text: str) -> Version:
        """The version that ``text`` (``millis.counter@origin``) names."""
        written, _, origin = text.partition("@")
        millis, _, counter = written.partition(".")
        return Version(int(millis), int(counter), origin)


@dataclass(frozen=True)
class Achieved:
    """What an answer satisfies of its service level."""

    #: The first entry that it satisfies, counted from 1.
    entry: int
    #: The microseconds that it took at the node that was asked. The way there and back is not in it.
    used_us: int
    #: The data center that has answered a read; absent after a write.
    answered_in: str | None = None
    #: In how many data centers a write was when it was answered; absent after a read.
    data_centers: int | None = None


@dataclass(frozen=True)
class Quality:
    """How good an answer was."""

    #: The level that was achieved; absent after a write.
    level: str | None = None
    #: Every write of another data center that is older than this many milliseconds is reflected; absent when no bound is known.
    staleness_ms: int | None = None
    #: The version that was read or written, if there is one.
    version: Version | None = None
    #: Under a service level.
    achieved: Achieved | None = None


@dataclass(frozen=True)
class Read:
    """What a read returned."""

    #: The value; absent when the key is absent, deleted or expired.
    value: bytes | None
    #: The level that was achieved.
    level: str | None
    #: As :attr:`Quality.staleness_ms`.
    staleness_ms: int | None
    #: The version that was read, if the key has one.
    version: Version | None
    #: Under a service level.
    achieved: Achieved | None


@dataclass(frozen=True)
class Many:
    """What a read-only transaction returned."""

    #: One value for each key, in the order of the keys.
    values: list[bytes | None]
    #: The level that was achieved.
    level: str | None
    #: As :attr:`Quality.staleness_ms`, for all keys.
    staleness_ms: int | None
    #: Under a service level.
    achieved: Achieved | None


@dataclass(frozen=True)
class Absent:
    """A condition: the key has no value."""


@dataclass(frozen=True)
class Present:
    """A condition: the key has a value."""


@dataclass(frozen=True)
class Value:
    """A condition: the key has this value."""

    expected: Bytes


Condition = Union[Absent, Present, Value]


@dataclass(frozen=True)
class Siblings:
    """Values that stand side by side."""

    #: Newest first; none if the key is absent.
    values: list[bytes]
    #: Which versions were seen; :meth:`Session.replace` takes it.
    context: str


@dataclass(frozen=True)
class NewCounter:
    """A counter to be made."""

    #: It is never below this.
    lower: int | None = None
    #: It is never above this.
    upper: int | None = None
    #: Its value at first.
    initial: int = 0
    #: Each data center's weight in the placement of its rights; none is evenly.
    placement: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rights:
    """What one data center may do to a counter."""

    #: The data center's name.
    data_center: str
    #: By how much it may decrement; absent without a lower bound.
    down: int | None
    #: By how much it may increment; absent without an upper bound.
    up: int | None
    #: ``member``, ``reclaiming``, or ``reclaimed by NAME``.
    standing: str


@dataclass(frozen=True)
class CounterView:
    """A counter, as known in one data center."""

    #: Its value.
    value: int
    #: It is never below this.
    lower: int | None
    #: It is never above this.
    upper: int | None
    #: Per data center.
    rights: list[Rights] = field(default_factory=list)
    #: The level that was achieved.
    level: str | None = None
    #: Every update of another data center that is older than this many milliseconds is reflected.
    staleness_ms: int | None = None


@dataclass(frozen=True)
class Options:
    """How long a client waits, and how often it tries."""

    #: How long an operation may go on beginning new tries, in seconds.
    deadline: float = 5.0
    #: How often a read is sent again when it fails for a passing reason, and an update of counters also where the first try may have been made: it has a name. Other writes are never sent again.
    read_retries: int = 3
    #: The first pause between two tries, in seconds; each further one is twice as long.
    retry_pause: float = 0.02
    #: For how long a region that could not be reached is passed over, in seconds.
    return_after: float = 5.0
    #: When a subscription to violations hears nothing for so long, not even an answer to its question whether somebody is there, it takes the connection for lost, in seconds.
    silence_after: float = 10.0
