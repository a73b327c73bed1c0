"""The cluster, what harms it, and one way to call the sync and the async client."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import rheostat

PASSWORD = "open sesame"
PATIENCE = 60
SUITE = Path(os.environ["RHEOSTAT_SUITE"])
PORTS = {name: int(os.environ["RHEOSTAT_PORT"]) + 10 * i for i, name in enumerate(("us-east", "us-west", "eu"))}


def key(name: str) -> str:
    return f"python:{name}:{secrets.token_hex(6)}"


def eventually(what: str, attempt: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            result = attempt()
            if result:
                return result
            error: BaseException | None = None
        except rheostat.RheostatError as failed:
            error = failed
        if time.monotonic() > until:
            raise AssertionError(f"never came: {what}") from error
        time.sleep(0.02)


def ctl(*words: str) -> None:
    subprocess.run([os.environ["RHEOSTAT"], "ctl", *words], check=True, capture_output=True, timeout=120)


@contextmanager
def cut(*links: tuple[str, str]) -> Iterator[Callable[[], None]]:
    """The links are cut, until the end or until what is returned is called."""
    address = f"127.0.0.1:{PORTS['us-east'] + 1}"
    whole = False

    def heal() -> None:
        nonlocal whole
        for one, other in links:
            if not whole:
                ctl("--address", address, "resume-link", one, other)
        whole = True

    for one, other in links:
        ctl("--address", address, "pause-link", one, other)
    try:
        yield heal
    finally:
        heal()


EAST_ALONE = (("us-east", "us-west"), ("us-east", "eu"))


def tell(data_center: str, what: signal.Signals) -> None:
    os.kill(int((SUITE / "nodes" / f"{data_center}-1" / "pid").read_text().split()[0]), what)


def start_again() -> None:
    ctl("cluster", "up", str(SUITE / "cluster.toml"))


class Proxy:
    """Passes bytes on to ``port``. What has ``marker`` in it is passed on, and its answer is not: the connection is lost instead, the first ``times`` times.

    While it hangs, nothing is passed on. One that ends takes no connection after the first that it has lost."""

    def __init__(self, port: int, marker: bytes = b"\xff", times: int = 0, *, ends: bool = False) -> None:
        self.seen = 0
        self.hangs = False
        self._ends = ends
        self._clients: list[socket.socket] = []
        self._target, self._marker, self._times = port, marker, times
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._clients.append(client)
            lose = threading.Event()
            threading.Thread(target=self._up, args=(client, server, lose), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server, lose), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, lose: threading.Event) -> None:
        with server:
            while data := _receive(client):
                if self._marker in data:
                    self.seen += 1
                    if self.seen <= self._times:
                        lose.set()
                        if self._ends:
                            self.close()
                if not self.hangs:
                    server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _down(self, client: socket.socket, server: socket.socket, lose: threading.Event) -> None:
        with client:
            while data := _receive(server):
                if lose.is_set():
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    def drop(self) -> None:
        """Loses all connections."""
        for client in self._clients:
            client.shutdown(socket.SHUT_RDWR)
        self._clients.clear()

    def close(self) -> None:
        # Who waits in accept would keep it open.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


class PlainRedis:
    """Speaks enough of Redis to be asked for RHEO, and says that it does not know it. One that has alarms knows it, tells so many to whoever listens first, and refuses all after that.

    One that is opening its data answers with LOADING to all but the commands that it greets. One that is busy knows RHEO, loses the connection on which the first update of a counter
    comes, and answers those that follow with BUSY. One that forgets knows RHEO, and asks who has made the first connection for the password again."""

    def __init__(
        self, *, resp3: bool = False, alarms: int = 0, opening: bool = False, greets: tuple[str, ...] = (), busy: bool = False, forgets: bool = False
    ) -> None:
        self.commands: list[str] = []
        self.updates = 0
        self._connections = 0
        self._busy, self._forgets = busy, forgets
        self._resp3, self._alarms = resp3, alarms
        self._opening, self._greets = opening, greets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connections += 1
            threading.Thread(target=self._serve, args=(client, client.makefile("rwb"), self._connections), daemon=True).start()

    def _serve(self, client: socket.socket, stream: Any, connection: int) -> None:
        while line := stream.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(stream.readline()[1:])
                words.append(stream.read(length + 2)[:-2].decode())
            self.commands.append(words[0].upper())
            known = words[0].upper() in ("SELECT", "SET", "GET", "CLIENT", "AUTH", "PING")
            if self._opening and words[0].upper() not in self._greets:
                stream.write(b"-LOADING this node is opening its data: 0 of 2 partition servers are open\r\n")
            elif self._forgets and connection == 1 and words[0].upper() in ("SELECT", "RHEO", "GET"):
                stream.write(b"-NOAUTH Authentication required.\r\n")
            elif self._busy and words[:2] == ["RHEO", "COUNTER"]:
                self.updates += 1
                if self.updates == 1:
                    client.shutdown(socket.SHUT_RDWR)
                    return
                stream.write(b"-BUSY too much waits here\r\n")
            elif (self._busy or self._forgets) and words[0].upper() == "RHEO":
                stream.write(b"*0\r\n" if words[1] == "QUALITY" else b"+OK\r\n")
            elif words[0].upper() == "HELLO" and self._resp3:
                stream.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            elif words[0].upper() in ("RHEO", "PING") and self.commands.count("RHEO") > (words[0].upper() == "RHEO") and self._alarms:
                stream.write(b"-NOPERM no more\r\n" if words[0].upper() == "RHEO" else b"-NOAUTH Authentication required.\r\n")
            elif words[0].upper() == "RHEO" and self._alarms:
                stream.write(b"+OK\r\n" + b"".join(map(_alarm, range(self._alarms))))
            else:
                stream.write(b"+OK\r\n" if known else f"-ERR unknown command '{words[0]}', with args beginning with: \r\n".encode())
            stream.flush()

    def close(self) -> None:
        self._listener.close()


def _alarm(number: int) -> bytes:
    texts = {"what": "possible", "monitor": "m", "keyspace": "k", "node": "n", "not_before": "1.0"}
    pairs = "".join(f"${len(name)}\r\n{name}\r\n${len(said)}\r\n{said}\r\n" for name, said in texts.items())
    return f">2\r\n$7\r\nmonitor\r\n%8\r\n{pairs}$6\r\nnumber\r\n:{number}\r\n$5\r\nat_ms\r\n:1\r\n$8\r\nevidence\r\n*0\r\n".encode()


def watch(name: str, expression: str) -> str:
    """Has a predicate over keys of the keyspace eventual watched for."""
    ctl("--address", f"127.0.0.1:{PORTS['us-east'] + 1}", "monitor", "add", name, expression, "--keyspace", "eventual")
    return name


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Sync:
    """The sync client."""

    name = "sync"
    client = rheostat.Client
    redis_class: Any = redis.Redis
    retry: Any = Retry

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return function(*args, **options)

    def redis(self, where: str | int, **options: Any) -> Any:
        port = PORTS[where] if isinstance(where, str) else where
        known = {"password": PASSWORD, "retry": self.retry(NoBackoff(), 0), "socket_timeout": 20, "socket_connect_timeout": 20}
        return self.redis_class(host="127.0.0.1", port=port, **{**known, **options})

    def connect(self, *where: str | int, options: rheostat.Options = rheostat.Options(), **of_redis: Any) -> Any:
        return self.wrap(self.client([self.redis(one, **of_redis) for one in where], options))

    def wrap(self, thing: Any) -> Any:
        return thing

    def listen(self, client: Any, monitor: str = "") -> Any:
        return rheostat.Violations.listen(client, monitor)


class Async(Sync):
    """The async client, called from threads as the sync one is."""

    name = "async"
    client: Any = rheostat.AsyncClient
    redis_class = redis.asyncio.Redis

    def __init__(self) -> None:
        from redis.asyncio.retry import Retry as AsyncRetry

        self.retry = AsyncRetry
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async def calling() -> Any:
            result = function(*args, **options)
            return await result if asyncio.iscoroutine(result) or asyncio.isfuture(result) else result

        return asyncio.run_coroutine_threadsafe(calling(), self.loop).result(PATIENCE * 2)

    def wrap(self, thing: Any) -> Any:
        kinds = (rheostat.AsyncClient, rheostat.AsyncSession, rheostat.AsyncCounter, rheostat.AsyncViolations, redis.asyncio.Redis)
        return Wrapped(self, thing) if isinstance(thing, kinds) else thing

    def listen(self, client: Any, monitor: str = "") -> Any:
        return self.wrap(self.call(rheostat.AsyncViolations.listen, client._thing, monitor))


class Wrapped:
    def __init__(self, api: Async, thing: Any) -> None:
        self._api, self._thing = api, thing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if not callable(found) or name == "as_current":
            return self._api.wrap(found)

        def call(*args: Any, **options: Any) -> Any:
            args = tuple(arg._thing if isinstance(arg, Wrapped) else arg for arg in args)
            return self._api.wrap(self._api.call(found, *args, **options))

        return call
