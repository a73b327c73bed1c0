"""Middleware that carries a user's session with web requests: in by the header ``Rheostat-Session``, out by the same.

While a request is served, commands of :attr:`Client.redis` and :attr:`AsyncClient.redis` belong to its session. A token that the servers refuse is answered with 400.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, MutableMapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Callable

from ._core import LONGEST_TOKEN, SESSION_HEADER
from ._errors import RheostatError, TokenError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from ._aio import AsyncClient
    from ._sync import Client

_HEADER = SESSION_HEADER.lower().encode()
_TOO_LONG = f"{SESSION_HEADER}: longer than {LONGEST_TOKEN} bytes"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class SessionAsgi:
    """ASGI middleware (Starlette, FastAPI, Django, Quart, ...): ``app.add_middleware(SessionAsgi, client=client)`` or ``app = SessionAsgi(app, client)``.

    The session is ``scope["rheostat.session"]``, and :func:`current_async_session`. What is done after the answer has begun is not in the token that the answer carries.
    """

    def __init__(self, app: AsgiApp, client: AsyncClient, keyspace: str | int | None = None) -> None:
        self.app = app
        self.client = client
        self.keyspace = keyspace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        token = next((value for name, value in scope["headers"] if name.lower() == _HEADER), b"")
        session = self.client.resume(self.keyspace, token.decode("latin-1"))
        if token:
            try:
                if len(token) > LONGEST_TOKEN:
                    raise TokenError(_TOO_LONG)
                await session.check()
            except TokenError as error:
                return await _refuse(scope, send, f"{SESSION_HEADER}: {error}")
            except RheostatError:
                pass  # Whoever uses the session is told the same.

        async def told(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message["headers"] = [*message.get("headers", ()), *((k.lower().encode(), v.encode()) for k, v in session.headers().items())]
            await send(message)

        scope["rheostat.session"] = session
        with session.as_current():
            await self.app(scope, receive, told)


async def _refuse(scope: Scope, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008, "reason": why[:120]})
    body = why.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SessionWsgi:
    """WSGI middleware (Flask, Django, ...): ``app.wsgi_app = SessionWsgi(app.wsgi_app, client)``.

    The session is ``environ["rheostat.session"]``, and :func:`current_session`. What is done after the answer has begun is not in the token that the answer carries.
    """

    def __init__(self, app: WSGIApplication, client: Client, keyspace: str | int | None = None) -> None:
        self.app = app
        self.client = client
        self.keyspace = keyspace

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        token = environ.get("HTTP_" + SESSION_HEADER.upper().replace("-", "_"), "")
        session = self.client.resume(self.keyspace, token)
        if token:
            try:
                if len(token) > LONGEST_TOKEN:
                    raise TokenError(_TOO_LONG)
                session.check()
            except TokenError as error:
                body = f"{SESSION_HEADER}: {error}".encode()
                start_response("400 Bad Request", [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
                return [body]
            except RheostatError:
                pass  # Whoever uses the session is told the same.

        def told(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *session.headers().items()], *error)

        environ["rheostat.session"] = session
        context = copy_context()
        context.run(session._set_current)
        answer = context.run(self.app, environ, told)
        return answer if isinstance(answer, (list, tuple)) else _Body(context, answer)


class _Body:
    """An application that goes on while its answer is sent, with the session that it began with."""

    def __init__(self, context: Context, body: Iterable[bytes]) -> None:
        self._context = context
        self._body = body
        self._parts = context.run(iter, body)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._context.run(next, self._parts)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            self._context.run(close)
