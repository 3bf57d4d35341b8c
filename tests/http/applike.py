"""A small application for the HTTP tests: facts that a test sets, and everything made of them."""

from __future__ import annotations

from reactive_kafka.observe.facts import AppFacts
from reactive_kafka.observe.health import Health, health
from reactive_kafka.observe.prometheus import Registry, registry
from tests.observe.samples import app, channel


class FactsApp:
    """What the endpoints need of an application."""

    def __init__(self, facts: AppFacts | None = None) -> None:
        self.now = facts or app(channel())
        self._registry = registry(self.facts)

    @property
    def registry(self) -> Registry:
        return self._registry

    def facts(self) -> AppFacts:
        return self.now

    def health(self) -> Health:
        return health(self.now)
