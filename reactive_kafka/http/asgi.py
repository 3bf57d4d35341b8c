"""The ASGI application with metrics, probes, the live page, and actions where there is a token.

It can be mounted into another application.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactive_kafka.http.action_requests import Actions, Records
from reactive_kafka.http.actions import action_routes, record_route
from reactive_kafka.http.fact_json import Look, channels_json, spark_json, stream_json
from reactive_kafka.http.fact_stream import FactStreams, Partitions, StreamPace
from reactive_kafka.http.guard import Guard, Refusal
from reactive_kafka.http.member_json import Json, member_of, not_among
from reactive_kafka.http.members import ONLY_SELF, Members
from reactive_kafka.http.members_html import PageOfMember, with_members
from reactive_kafka.http.page_html import channel_page, overview_page, sign_in_page
from reactive_kafka.http.scrapes import Scrapes
from reactive_kafka.http.static_files import static_file
from reactive_kafka.observe.facts import AppFacts, ApplicationIdentity
from reactive_kafka.observe.health import Health, Probe, health
from reactive_kafka.observe.recent_events import RecentEvents
from reactive_kafka.observe.trends import Looks

if TYPE_CHECKING:
    from reactive_kafka.observe.prometheus import Registry

_HEADERS = {
    "Cache-Control": "no-store",
    # The page has no script and no style in its HTML, and its script writes no HTML. So text of
    # users cannot become code, even if it was not escaped.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class AppLike(Protocol):
    """What the endpoints need of an application. Called on the event loop, it must not block."""

    @property
    def registry(self) -> Registry: ...
    @property
    def recent_events(self) -> RecentEvents: ...
    def facts(self) -> AppFacts: ...
    def health(self) -> Health: ...
    def identity(self) -> ApplicationIdentity: ...


def make_asgi(
    app: AppLike,
    guard: Callable[[], Guard] = Guard,
    actions: Actions | None = None,
    records: Records | None = None,
    peers: Callable[[], Sequence[str]] = tuple,
    pace: StreamPace | None = None,
) -> Starlette:
    """Return the ASGI application of *app*. GET and HEAD change nothing; POST acts.

    Args:
        app: The application to show.
        guard: Called at each request, because an application may be mounted before it is
            configured.
        actions: Carries out what POST asks for. None: nothing can be changed.
        records: Knows what happened to records. None: that cannot be asked.
        peers: Returns the addresses of other processes of the service.
        pace: How often streams send. Default: once a second.
    """

    looks = Looks()

    def look(selected: Partitions = None) -> Look:
        facts = app.facts()
        return Look(
            facts=facts,
            identity=app.identity(),
            health=health(facts),
            trends=looks.look(facts, asyncio.get_running_loop().time()),
            recent=app.recent_events,
            selected=selected,
            can_act=actions is not None and guard().token is not None,
        )

    def streamed(partitions: Partitions) -> str:
        return _json_text(stream_json(look(partitions)))

    scrapes = Scrapes(lambda: app.registry)
    streams = FactStreams(streamed, pace)
    members = Members(peers, lambda: guard().token)
    answers: dict[str, Callable[[], Response]] = {
        "/health": lambda: _probe(app.health().overall),
        "/health/live": lambda: _probe(app.health().live),
        "/health/ready": lambda: _probe(app.health().ready),
        "/health/started": lambda: _probe(app.health().started),
        "/api/channels": lambda: _json(channels_json(look()), 200),
        "/api/spark": lambda: _json(spark_json(look()), 200),
    }

    async def metrics(request: Request) -> Response:
        return await scrapes.answer(request.headers.get("accept", ""))

    async def all_of_service(facts: Json) -> list[Json]:
        found: list[Json] = [member_of(facts)]
        return found + not_among(found, await members.others())

    async def overview(request: Request) -> Response:
        facts = stream_json(look(frozenset()))
        return await page(request, facts, overview_page(facts, _root(request.scope)))

    async def one_channel(request: Request) -> Response:
        name = request.path_params["name"]
        facts = stream_json(look(frozenset({name})))
        html = channel_page(
            facts, name, _root(request.scope), all_rows="all" in request.query_params
        )
        if html is None:
            return PlainTextResponse("no incoming channel has this name\n", 404)
        return await page(request, facts, html, name)

    async def page(request: Request, facts: Json, html: str, channel: str = "") -> Response:
        # A supervisor fills in the members of the pages of its workers.
        if not _is_only_self(request):
            place = PageOfMember(top=_root(request.scope), channel=channel)
            html = with_members(html, await all_of_service(facts), place)
        return HTMLResponse(html)

    async def static(request: Request) -> Response:
        found = static_file(request.path_params["name"])
        if found is None:
            return PlainTextResponse("there is no such file\n", 404)
        return Response(found.content, media_type=found.media_type)

    async def all_members(request: Request) -> Response:
        facts = stream_json(look(frozenset()))
        if _is_only_self(request):
            return _json({"members": [member_of(facts)]}, 200)
        return _json({"members": await all_of_service(facts)}, 200)

    async def stream(request: Request) -> Response:
        return streams.answer(request)

    def endpoint(answer: Callable[[], Response]) -> Callable[[Request], Any]:
        # Starlette would run a plain function in a thread.
        async def answer_on_loop(_: Request) -> Response:
            return answer()

        return answer_on_loop

    asgi = Starlette(
        middleware=[Middleware(_WithHeaders), Middleware(_Guarded, guard)],
        routes=[
            Route("/", overview),
            Route("/channels/{name:path}", one_channel),
            Route("/static/{name}", static),
            Route("/metrics", metrics),
            Route("/api/stream", stream),
            Route("/api/members", all_members),
            *(Route(path, endpoint(answer)) for path, answer in answers.items()),
            *(() if actions is None else action_routes(actions)),
            *(() if records is None else [record_route(records)]),
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
            path = _own_path(scope)
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
            }
            refusal = self._guard().refusal(scope["method"], path, headers)
            if refusal is not None:
                is_action = scope["method"] == "POST" and path.startswith("/api/")
                app = refused_action(refusal) if is_action else refused(refusal)
                if refusal.status == 401 and _is_page(path) and _is_browser(headers):
                    html = sign_in_page(_root(scope))
                    app = HTMLResponse(html, 401, refusal.headers)
        await app(scope, receive, send)


def _is_only_self(request: Request) -> bool:
    return request.query_params.get("only") == ONLY_SELF


def _is_page(path: str) -> bool:
    return path in ("", "/") or path.startswith("/channels/")


def _is_browser(headers: Mapping[str, str]) -> bool:
    return "text/html" in headers.get("accept", "")


def _own_path(scope: Scope) -> str:
    """Return the path of a request within the application, as its router sees it.

    The root path is removed only where whole parts of the path are. A proxy may have removed it
    already: then the path does not begin with it.
    """
    path = str(scope["path"])
    root = str(scope.get("root_path", ""))
    if path == root or path.startswith(f"{root}/"):
        return path[len(root) :]
    return path


def _root(scope: Scope) -> str:
    """Return where the paths of the application begin, as links of a page name it.

    Without a mount path links are relative, because a proxy or a supervisor may serve the page
    below a path that it removes.
    """
    mounted_at = str(scope.get("root_path", ""))
    if mounted_at or not scope["path"].startswith("/channels/"):
        return mounted_at or "."
    # A browser does not take the %2F in the name of a channel for a step.
    written = scope.get("raw_path", scope["path"].encode())
    return "/".join([".."] * (written.count(b"/") - 1))


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
    return Response(_json_text(content), status, media_type="application/json")


def _json_text(content: dict[str, Any]) -> str:
    # Keep it ASCII: a reason may contain lone surrogates, which UTF-8 cannot encode.
    return json.dumps(content, allow_nan=False)
