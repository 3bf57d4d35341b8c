"""A small application for the HTTP tests: facts that a test sets, and everything made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.types import ASGIApp

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import Guard
from reactive_kafka.http.server import serve
from reactive_kafka.observe.facts import AppFacts, ApplicationIdentity
from reactive_kafka.observe.health import Health, health
from reactive_kafka.observe.prometheus import Registry, registry, render
from reactive_kafka.observe.recent_events import RecentEvents
from tests.observe.samples import app, channel


class FactsApp:
    """What the endpoints need of an application.

    Args:
        facts: What it tells of itself.
        pid: Its process.
        change: Makes the next facts of the last ones, and of how often somebody has looked.
    """

    def __init__(
        self,
        facts: AppFacts | None = None,
        pid: int = 4711,
        change: Callable[[AppFacts, int], AppFacts] = lambda last, looks: last,
    ) -> None:
        self.now = facts or app(channel())
        self.looks = 0
        self._pid = pid
        self._change = change
        self._registry = registry(self.facts)
        self.recent_events = RecentEvents(lambda: 978307200.0)

    @property
    def registry(self) -> Registry:
        return self._registry

    def metrics_text(self) -> str:
        """What a scrape reads."""
        return render(self._registry, "")[0].decode()

    def facts(self) -> AppFacts:
        self.looks += 1
        self.now = self._change(self.now, self.looks)
        return self.now

    def identity(self) -> ApplicationIdentity:
        return ApplicationIdentity(
            name="shop",
            version="1.2.3",
            library_version="0.1.0",
            host="host-7",
            pid=self._pid,
            uptime_s=93_784.5,
        )

    def health(self) -> Health:
        return health(self.now)


def asgi_of(app: FactsApp, token: str | None = None) -> Starlette:
    """Its endpoints, for whoever has the token."""
    return make_asgi(app, lambda: Guard(token=token))


@asynccontextmanager
async def served_on_a_port(served: FactsApp | ASGIApp) -> AsyncIterator[int]:
    """Serve the endpoints of an application, or others, on a free port of this machine."""
    asgi = make_asgi(served) if isinstance(served, FactsApp) else served
    async with serve(asgi, "127.0.0.1", 0) as server:
        yield server.port
