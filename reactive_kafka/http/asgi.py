"""The ASGI application with metrics, probes, a status page, and actions where there is a token.

It can be mounted into another application.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactive_kafka.http.action_requests import Actions
from reactive_kafka.http.actions import action_routes
from reactive_kafka.http.guard import Guard, Refusal
from reactive_kafka.http.scrapes import Scrapes
from reactive_kafka.http.views import STYLE, channels_json, page, spark_json
from reactive_kafka.observe.facts import AppFacts
from reactive_kafka.observe.health import Health, Probe

if TYPE_CHECKING:
    from reactive_kafka.observe.prometheus import Registry

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class AppLike(Protocol):
    """What the endpoints need of an application. Called on the event loop, it must not block."""

    @property
    def registry(self) -> Registry: ...
    def facts(self) -> AppFacts: ...
    def health(self) -> Health: ...


def make_asgi(
    app: AppLike, guard: Callable[[], Guard] = Guard, actions: Actions | None = None
) -> Starlette:
    """Return the ASGI application of *app*. GET and HEAD change nothing; POST acts.

    Args:
        app: What is shown.
        guard: Called at each request, because an application may be mounted before it is
            configured.
        actions: Carries out what POST asks for. None: nothing can be changed.
    """
    scrapes = Scrapes(lambda: app.registry)
    answers: dict[str, Callable[[], Response]] = {
        "/health": lambda: _probe(app.health().overall),
        "/health/live": lambda: _probe(app.health().live),
        "/health/ready": lambda: _probe(app.health().ready),
        "/health/started": lambda: _probe(app.health().started),
        "/api/channels": lambda: _json(channels_json(app.facts()), 200),
        "/api/spark": lambda: _json(spark_json(app.facts()), 200),
    }

    async def metrics(request: Request) -> Response:
        return await scrapes.answer(request.headers.get("accept", ""))

    async def status(request: Request) -> Response:
        return HTMLResponse(page(app.facts(), app.health(), request.scope.get("root_path", "")))

    def endpoint(answer: Callable[[], Response]) -> Callable[[Request], Any]:
        # Starlette would run a plain function in a thread.
        async def answer_on_loop(_: Request) -> Response:
            return answer()

        return answer_on_loop

    asgi = Starlette(
        middleware=[Middleware(_WithHeaders), Middleware(_Guarded, guard)],
        routes=[
            Route("/", status),
            Route("/metrics", metrics),
            *(Route(path, endpoint(answer)) for path, answer in answers.items()),
            *(() if actions is None else action_routes(actions)),
        ],
    )
    # A redirect would go to whatever name the client has sent in Host.
    asgi.router.redirect_slashes = False
    return asgi


class _WithHeaders:
    """Adds the headers of every response, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Guarded:
    """Answers the requests that the guard refuses."""

    def __init__(self, app: ASGIApp, guard: Callable[[], Guard]) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
            }
            refusal = self._guard().refusal(scope["method"], path, headers)
            if refusal is not None:
                is_action = scope["method"] == "POST" and path.startswith("/api/")
                app = refused_action(refusal) if is_action else refused(refusal)
        await app(scope, receive, send)


def refused(refusal: Refusal) -> Response:
    """Return the response of a refusal."""
    return PlainTextResponse(f"{refusal.why}\n", refusal.status, refusal.headers)


def refused_action(refusal: Refusal) -> Response:
    """Return the response of a refused action, in JSON like that of any other action."""
    response = _json({"error": refusal.why}, refusal.status)
    response.headers.update(refusal.headers)
    return response


def is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """True for the headers of an event stream, which does not end by itself."""
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )


def _probe(probe: Probe) -> Response:
    return _json(probe.to_json(), 200 if probe.is_up else 503)


def _json(content: dict[str, Any], status: int) -> Response:
    # Keep it ASCII: a reason may contain lone surrogates, which UTF-8 cannot encode.
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")
