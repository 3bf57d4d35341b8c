"""A schema registry inside the process, for tests. It accepts every schema as compatible."""

from __future__ import annotations

from uuid import UUID

from reactive_kafka.formats.registered.schema_questions import Schema, SchemaWithId
from reactive_kafka.schemas.answers import NotFound


class MemoryRegistry:
    """A :class:`~.schema_registry.RegistryClient` that keeps schemas in memory.

    Ids count up from 1, and so do GUIDs. The same text of a kind has the same id in every subject.
    """

    def __init__(self) -> None:
        self._ids: dict[Schema, int] = {}
        self._subjects: dict[str, list[Schema]] = {}

    async def schema(self, id: int) -> Schema:
        for schema, own in self._ids.items():
            if own == id:
                return schema
        raise NotFound(f"404: there is no schema {id}")

    async def by_guid(self, guid: str) -> Schema:
        return await self.schema(UUID(guid).int)

    async def latest(self, subject: str) -> SchemaWithId:
        schemas = self._subjects.get(subject)
        if not schemas:
            raise NotFound(f"404: there is no subject {subject!r}")
        return SchemaWithId(self._ids[schemas[-1]], schemas[-1])

    async def register(self, subject: str, schema: Schema) -> int:
        for reference in schema.references:
            if not reference.version:
                await self.register(reference.subject, reference.schema)
        schemas = self._subjects.setdefault(subject, [])
        if schema not in schemas:
            schemas.append(schema)
        return self._ids.setdefault(schema, len(self._ids) + 1)

    async def lookup(self, subject: str, schema: Schema) -> int:
        if schema not in self._subjects.get(subject, ()):
            raise NotFound(f"404: the subject {subject!r} has no such schema")
        return self._ids[schema]
