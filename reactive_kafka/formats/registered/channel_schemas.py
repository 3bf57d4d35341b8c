"""What one channel knows of the schemas in a registry. Pure.

Codecs run on the record's way, so they look here and do not wait. If an answer is missing they
raise :class:`SchemaMissing`; a caller that may wait has it fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from reactive_kafka.errors import EncodeError, SchemaAwayError
from reactive_kafka.formats.registered.schema_questions import ByGuid, ById, SchemaQuestion

if TYPE_CHECKING:
    from asyncio import Future

K = TypeVar("K")
V = TypeVar("V")

SubjectStrategy = Literal["topic", "record", "topic-record"]
RecordPart = Literal["value", "key"]

MOST_KNOWN = 1_000
"""How many answers, and things compiled of them, a channel keeps. The oldest one is dropped."""


class SchemaMissing(SchemaAwayError):
    """An answer that a codec needs is not known here yet. The record itself may be fine."""

    def __init__(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> None:
        self.schemas = schemas
        self.ask = ask
        super().__init__(f"{ask} is not known yet")

    @property
    def is_read(self) -> bool:
        """Whether a record that was read needs the answer; otherwise one to be sent needs it."""
        return isinstance(self.ask, ById | ByGuid)

    def arrives(self) -> Future[bool]:
        """Return a future that is done when there is an answer; False: there will be none.

        A caller that does not wait any more cancels it.

        Raises:
            SchemaAwayError: The application does not run.
        """
        if self.schemas.requester is None:
            raise SchemaAwayError(f"{self.ask}: the application does not run")
        return self.schemas.requester.request(self.schemas, self.ask)

    def ask_for_it(self) -> None:
        """Have the answer fetched for a later call, and do not wait for it."""
        if self.schemas.requester is not None:
            self.schemas.requester.want(self.schemas, self.ask)

    def why(self) -> str:
        """Return why there is no answer yet, as far as that is known."""
        requester = self.schemas.requester
        if requester is None:
            return str(self)
        return requester.why(self.ask)


class SchemaRequester(Protocol):
    """Asks the registry."""

    def request(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> Future[bool]:
        """See :meth:`SchemaMissing.arrives`."""

    def want(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> None:
        """See :meth:`SchemaMissing.ask_for_it`."""

    def why(self, ask: SchemaQuestion) -> str:
        """Return why there is no answer yet."""

    def not_ready(self, schemas: ChannelSchemas) -> list[str]:
        """Return what a channel has waited for longer than a moment, and why."""

    def remark(self, schemas: ChannelSchemas, text: str) -> None:
        """Report a problem of a schema that can be used all the same."""


class ChannelSchemas:
    """The registry's answers that one channel knows.

    Args:
        owner: The channel's name, for people.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._answers: dict[SchemaQuestion, Any] = {}
        self.requester: SchemaRequester | None = None
        self._compiled: list[dict[Any, Any]] = []
        # Problems of schemas in files. The files are read before an observer can be told.
        self.remarks: list[str] = []

    def cache(self) -> dict[Any, Any]:
        """Return a new dict for what a codec compiles. It is emptied when answers become void."""
        compiled: dict[Any, Any] = {}
        self._compiled.append(compiled)
        return compiled

    def connect(self, requester: SchemaRequester | None) -> None:
        """Ask *requester* from now on, and forget all answers.

        It may be another registry, which has other ids.
        """
        self.requester = requester
        self._answers.clear()
        for compiled in self._compiled:
            compiled.clear()
        if requester is not None:
            for text in self.remarks:
                requester.remark(self, text)

    def remark(self, text: str) -> None:
        """Report a problem of a schema that can be used all the same.

        It is reported at once, or when the application starts.
        """
        if self.requester is not None:
            self.requester.remark(self, text)
        elif text not in self.remarks:
            self.remarks.append(text)

    def find(self, ask: SchemaQuestion) -> Any:
        """Return the answer.

        Raises:
            SchemaMissing: There is none yet.
            DecodeError, EncodeError: The registry has refused the question.
        """
        answer = self._answers.get(ask)
        if answer is None:
            raise SchemaMissing(self, ask)
        if isinstance(answer, Exception):
            # A new error for each record: one that is raised again gathers tracebacks.
            raise type(answer)(*answer.args)
        return answer

    def of_records(self) -> dict[SchemaQuestion, Any]:
        """Return the answers that records named, errors included."""
        return {
            ask: answer for ask, answer in self._answers.items() if isinstance(ask, ById | ByGuid)
        }

    def answered(self, ask: SchemaQuestion, answer: Any) -> None:
        """Keep an answer, which may be a DecodeError or EncodeError."""
        keep_bounded(self._answers, ask, answer)

    def forget(self, ask: SchemaQuestion) -> None:
        """Forget an answer: the question is asked again when it is needed next."""
        self._answers.pop(ask, None)

    def forget_guids(self) -> None:
        """Forget every GUID that was refused."""
        for ask, answer in list(self._answers.items()):
            if isinstance(ask, ByGuid) and isinstance(answer, Exception):
                self.forget(ask)

    def not_ready(self) -> list[str]:
        """Return what the channel waits for, and why; for readiness."""
        if self.requester is None:
            return []
        return self.requester.not_ready(self)


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """Where the schemas of a channel's values, or keys, come from.

    Attributes:
        file: Path of the reader's schema, or of the writer's.
        subject: How the subject is named that a schema is registered under.
        register: Register a schema that its subject does not have.
        loaded: The content of the file, if it was read already.
    """

    schemas: ChannelSchemas
    topic: str
    part: RecordPart = "value"
    file: str | None = None
    subject: SubjectStrategy = "topic"
    register: bool = True
    loaded: Any = None

    def own(self, load: Callable[[str], Any]) -> Any:
        """Return the schema of the file, which *load* reads; None: there is no file."""
        if self.loaded is not None or self.file is None:
            return self.loaded
        return load(self.file)

    def subject_of(self, record_name: str) -> str:
        """Return the subject that a schema is registered under."""
        if self.subject == "topic":
            return f"{self.topic}-{self.part}"
        if self.subject == "record":
            return record_name
        return f"{self.topic}-{record_name}"


def keep_bounded(known: dict[K, V], key: K, value: V) -> V:
    """Put an item into a dict that is bounded: the oldest one is dropped. Return the value."""
    while len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = value
    return value


def no_schema_error(what: str) -> EncodeError:
    """Return the error for plain data that no schema is known for."""
    return EncodeError(
        f"no schema is known for {what}: name one with `file`, send a model, or write "
        "`register = false` to use the subject's latest"
    )
