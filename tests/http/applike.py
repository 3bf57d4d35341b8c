"""A small application for the HTTP tests: facts that a test sets, and everything made of them."""

from __future__ import annotations

from starlette.applications import Starlette

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import Guard
from reactive_kafka.observe.facts import AppFacts, ApplicationIdentity
from reactive_kafka.observe.health import Health, health
from reactive_kafka.observe.prometheus import Registry, registry
from reactive_kafka.observe.recent_events import RecentEvents
from tests.observe.samples import app, channel


class FactsApp:
    """What the endpoints need of an application."""

    def __init__(self, facts: AppFacts | None = None, pid: int = 4711) -> None:
        self.now = facts or app(channel())
        self._pid = pid
        self._registry = registry(self.facts)
        self.recent_events = RecentEvents(lambda: 978307200.0)

    @property
    def registry(self) -> Registry:
        return self._registry

    def facts(self) -> AppFacts:
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
