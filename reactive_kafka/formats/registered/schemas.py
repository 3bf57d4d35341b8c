"""Schemas that a registry has, what is known of them here, and how a record names the one it was
written with. Pure.

Codecs look here, on the record's way, and ask nobody: what is not here yet they raise as
:class:`SchemaMissing`, and whoever may wait has it fetched. Source: Confluent's
wire format: a zero, then the schema's id in four bytes; or a header with a one and its GUID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

from reactive_kafka.errors import DecodeError, EncodeError, SchemaAwayError

if TYPE_CHECKING:
    from asyncio import Future

K = TypeVar("K")
V = TypeVar("V")

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
Strategy = Literal["topic", "record", "topic-record"]
Part = Literal["value", "key"]

MOST_KNOWN = 1_000
"""So many schemas, and what was compiled of them, are kept of a channel; the one that came first
goes.
"""
HEAD = 5
GUID_HEAD = 17
"""Bytes before what the format itself has written: with the schema's id, and with its GUID."""
VALUE_HEADER = "__value_schema_id"
KEY_HEADER = "__key_schema_id"
"""Headers that may name the schema of a record's value, and that of its key."""


class Reference(NamedTuple):
    """Another schema that one names: ``name`` is its type, import or ``$ref``. Version 0: it is
    registered first.
    """

    name: str
    subject: str
    version: int
    schema: Schema


class Schema(NamedTuple):
    """A schema as the registry has it, with the others that it needs."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()

    def texts(self) -> dict[str, str]:
        """Name -> text of all that it refers to, those first that others need."""
        found: dict[str, str] = {}
        for reference in self.references:
            found.update(reference.schema.texts())
            found[reference.name] = reference.schema.text
        return found


class ById(NamedTuple):
    """The schema with this id; answered by a :class:`Schema`."""

    id: int

    def __str__(self) -> str:
        return f"schema {self.id}"


class ByGuid(NamedTuple):
    """The same by its GUID, which some writers put into a header."""

    guid: str

    def __str__(self) -> str:
        return f"schema {self.guid}"


class Latest(NamedTuple):
    """The newest schema of a subject; answered by a :class:`Known`."""

    subject: str

    def __str__(self) -> str:
        return f"the latest schema of subject {self.subject!r}"


class IdOf(NamedTuple):
    """The id of a schema under a subject, where it is registered if that is wanted; answered by an
    ``int``.
    """

    subject: str
    schema: Schema
    register: bool

    def __str__(self) -> str:
        return f"{'registering' if self.register else 'looking up'} the schema of subject {self.subject!r}"


Ask = ById | ByGuid | Latest | IdOf
"""What is asked of a registry."""


class Known(NamedTuple):
    """A schema with its id."""

    id: int
    schema: Schema


class SchemaMissing(SchemaAwayError):
    """What a codec needs is not known here yet; nothing is wrong with the record so far."""

    def __init__(self, schemas: Schemas, ask: Ask) -> None:
        self.schemas = schemas
        self.ask = ask
        super().__init__(f"{ask} is not known yet")

    @property
    def is_read(self) -> bool:
        """Whether a record that has come needs it; else one that is to be sent."""
        return isinstance(self.ask, ById | ByGuid)

    def arrives(self) -> Future[bool]:
        """Done when there is an answer, whatever it is; False: none will come. Whoever waits no
        more cancels it.

        SchemaAwayError: the application does not run.
        """
        if self.schemas.asker is None:
            raise SchemaAwayError(f"{self.ask}: the application does not run")
        return self.schemas.asker.request(self.schemas, self.ask)

    def ask_for_it(self) -> None:
        """Have it asked for, for a later call to find: nobody waits."""
        if self.schemas.asker is not None:
            self.schemas.asker.want(self.schemas, self.ask)

    def why(self) -> str:
        """Why there is none yet, as far as that is known."""
        asker = self.schemas.asker
        return str(self) if asker is None else asker.why(self.ask)


class Asker(Protocol):
    """Whoever asks the registry."""

    def request(self, schemas: Schemas, ask: Ask) -> Future[bool]:
        """As :meth:`SchemaMissing.arrives`."""

    def want(self, schemas: Schemas, ask: Ask) -> None:
        """As :meth:`SchemaMissing.ask_for_it`."""

    def why(self, ask: Ask) -> str:
        """Why there is no answer yet."""

    def not_ready(self, schemas: Schemas) -> list[str]:
        """What a channel has waited for longer than a moment, and why."""

    def remark(self, schemas: Schemas, text: str) -> None:
        """Report a problem of a schema that can be used all the same."""


class Schemas:
    """What one channel knows of the registry's schemas. ``owner`` is the channel, for people."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._answers: dict[Ask, Any] = {}
        self.asker: Asker | None = None
        self._compiled: list[dict[Any, Any]] = []
        # what was odd about schemas in files, which are read before anybody can be told
        self.remarks: list[str] = []

    def cache(self) -> dict[Any, Any]:
        """A map for what a codec makes of answers; it is emptied when they are void."""
        made: dict[Any, Any] = {}
        self._compiled.append(made)
        return made

    def connect(self, asker: Asker | None) -> None:
        """Ask this one from now on. It may be another registry, which gives other ids: nothing is
        known then.
        """
        self.asker = asker
        self._answers.clear()
        for made in self._compiled:
            made.clear()
        if asker is not None:
            for text in self.remarks:
                asker.remark(self, text)

    def remark(self, text: str) -> None:
        """Report a problem of a schema that can be used all the same: at once, or when the
        application starts.
        """
        if self.asker is not None:
            self.asker.remark(self, text)
        elif text not in self.remarks:
            self.remarks.append(text)

    def find(self, ask: Ask) -> Any:
        """The answer, or the error that is one; SchemaMissing: there is none yet."""
        answer = self._answers.get(ask)
        if answer is None:
            raise SchemaMissing(self, ask)
        if isinstance(answer, Exception):
            # Each record's own: an error gathers its tracebacks.
            raise type(answer)(*answer.args)
        return answer

    def of_records(self) -> dict[Ask, Any]:
        """The answers about records that have come, errors among them."""
        return {
            ask: answer for ask, answer in self._answers.items() if isinstance(ask, ById | ByGuid)
        }

    def answered(self, ask: Ask, answer: Any) -> None:
        """Keep an answer, or the DecodeError or EncodeError that it is."""
        keep(self._answers, ask, answer)

    def forget(self, ask: Ask) -> None:
        """Ask again when it is needed next."""
        self._answers.pop(ask, None)

    def forget_guids(self) -> None:
        """Ask again for each GUID that was refused, when it is needed next."""
        for ask, answer in list(self._answers.items()):
            if isinstance(ask, ByGuid) and isinstance(answer, Exception):
                self.forget(ask)

    def not_ready(self) -> list[str]:
        """What is waited for, and why; for readiness."""
        return [] if self.asker is None else self.asker.not_ready(self)


@dataclass(frozen=True, slots=True)
class Registered:
    """Where the schemas of a channel's values, or keys, come from."""

    schemas: Schemas
    topic: str
    part: Part = "value"
    # Of the reader's schema, or of the writer's.
    file: str | None = None
    subject: Strategy = "topic"
    register: bool = True
    # What is in the file, where that has been read already.
    loaded: Any = None

    def own(self, load: Callable[[str], Any]) -> Any:
        """The schema of the file, which *load* reads; None: there is no file."""
        return self.loaded if self.loaded is not None or self.file is None else load(self.file)

    def subject_of(self, record_name: str) -> str:
        """The subject that a schema is registered under."""
        if self.subject == "topic":
            return f"{self.topic}-{self.part}"
        return record_name if self.subject == "record" else f"{self.topic}-{record_name}"


def head_of(value: bytes) -> bytes:
    """What comes before a record's data, if it is one that names a schema: :func:`named_by` finds
    out.
    """
    return value[: GUID_HEAD if value[:1] == b"\1" else HEAD]


def named_by(head: bytes) -> ById | ByGuid:
    """The schema that a record names; a DecodeError if it names none."""
    if len(head) == HEAD and not head[0]:
        return ById(int.from_bytes(head[1:], "big"))
    if len(head) == GUID_HEAD and head[0] == 1:
        return ByGuid(str(UUID(bytes=head[1:])))
    raise DecodeError("it names no schema: a zero and four bytes of an id are to come first")


def framed(
    data: bytes | None, headers: Sequence[tuple[str, bytes | None]], named_in: str = VALUE_HEADER
) -> bytes | None:
    """The value or key of a record as if its schema stood before it, where it stands in a header.

    DecodeError: the header is there, and names none. What follows would be taken for the rest of a
    name.
    """
    for name, content in headers:
        if name == named_in and content is not None and data is not None:
            named_by(head_of(content))
            return content + data
    return data


def head(id: int) -> bytes:
    """What a record with this schema begins with."""
    return b"\0" + id.to_bytes(4, "big")


def keep(known: dict[K, V], key: K, value: V) -> V:
    """Put it into a bounded map; what came first goes."""
    while len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = value
    return value


def not_registered(what: str) -> EncodeError:
    """Why plain data cannot be written."""
    return EncodeError(
        f"no schema is known for {what}: name one with `file`, send a model, or write `register = false` to use the"
        " subject's latest"
    )
