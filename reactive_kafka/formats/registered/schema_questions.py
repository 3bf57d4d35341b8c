"""What is asked of a schema registry, and what it answers. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]


class Reference(NamedTuple):
    """Another schema that a schema refers to.

    Attributes:
        name: How the schema refers to it: its type, import or ``$ref``.
        subject: Its subject.
        version: Its version; 0: it has to be registered first.
        schema: The schema itself.
    """

    name: str
    subject: str
    version: int
    schema: Schema


class Schema(NamedTuple):
    """A schema as the registry has it, with the schemas that it needs."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()

    def __hash__(self) -> int:
        # Not of the schemas in the references: many ways may lead to one of them.
        return hash((self.kind, self.text, tuple(reference.name for reference in self.references)))

    def texts(self) -> dict[str, str]:
        """Return name -> text of all that it refers to. A schema comes after those it needs."""
        found: dict[str, str] = {}
        self._add_texts(found)
        return found

    def _add_texts(self, found: dict[str, str]) -> None:
        for reference in self.references:
            if reference.name not in found:
                reference.schema._add_texts(found)
                found[reference.name] = reference.schema.text


class SchemaWithId(NamedTuple):
    """A schema and its id."""

    id: int
    schema: Schema


class ById(NamedTuple):
    """Asks for the schema with this id. The answer is a :class:`Schema`."""

    id: int

    def __str__(self) -> str:
        return f"schema {self.id}"


class ByGuid(NamedTuple):
    """Asks for the schema with this GUID, which some writers put into a header."""

    guid: str

    def __str__(self) -> str:
        return f"schema {self.guid}"


class LatestOf(NamedTuple):
    """Asks for the newest schema of a subject. The answer is a :class:`SchemaWithId`."""

    subject: str

    def __str__(self) -> str:
        return f"the latest schema of subject {self.subject!r}"


class IdOf(NamedTuple):
    """Asks for the id of a schema under a subject, an ``int``.

    Attributes:
        register: Register the schema if the subject does not have it.
    """

    subject: str
    schema: Schema
    register: bool

    def __str__(self) -> str:
        verb = "registering" if self.register else "looking up"
        return f"{verb} the schema of subject {self.subject!r}"


SchemaQuestion = ById | ByGuid | LatestOf | IdOf
