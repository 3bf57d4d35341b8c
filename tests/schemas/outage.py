"""A schema registry in memory that a test takes away from an application, and gives back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from reactive_kafka import App
from reactive_kafka.formats.registered.schema_questions import Schema
from reactive_kafka.schemas.answers import RegistryAway


class RegistryOutage:
    """Takes the registry of an application that has started away.

    Answers are kept for good, so it has to begin before the first record comes.
    """

    def __init__(self, app: App) -> None:
        assert app._run is not None
        assert app._run.channels is not None
        self._registry: Any = app._run.channels.registry
        self._source = self._registry.source

    async def register_bytes(self, *subjects: str) -> None:
        """Register the Avro schema "bytes" for each subject; it gets the id 1."""
        for subject in subjects:
            assert await self.register(subject, '"bytes"') == 1

    async def register(self, subject: str, avro: str) -> int:
        """Register an Avro schema for a subject; return its id."""
        schema_id: int = await self._source.register(subject, Schema("AVRO", avro))
        return schema_id

    def begin(self) -> None:
        self._registry.source = _Away()

    def end(self) -> None:
        self._registry.source = self._source


class _Away:
    """What a registry that does not answer says to each question."""

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def ask(*arguments: object) -> None:
            raise RegistryAway("the registry is away")

        return ask
