"""Events of an outbox: values that become rows of the handler's own transaction.

The checkpoint store opens the transaction, and an outgoing channel makes the events. They meet
here: the call of a handler that sends to an outbox is in :data:`OUTBOX_CALL`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from reactive_kafka.records import RecordBytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reactive_kafka.records import RawRecord

EVENT_ID = "reactive-kafka-event-id"
"""The header with the id of an event. The same event has the same id each time it is written."""


class OutboxEvent(NamedTuple):
    """A record to write to Kafka when the transaction is stored.

    Attributes:
        id: Unique. It is in the header :data:`EVENT_ID` of the record, too.
        channel: The outgoing channel that writes it.
        topic: The topic to write to.
        partition: None: the key chooses.
        record: The record in bytes.
    """

    id: str
    channel: str
    topic: str
    partition: int | None
    record: RecordBytes


class OutboxTransaction(Protocol):
    """A transaction of the checkpoint store that takes events.

    Attributes:
        source: The record that it settles. None: it settles several.
    """

    source: RawRecord | None

    async def __aenter__(self) -> Any:
        """Begin. Return what the handler writes its rows through."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Commit, or roll back for an error."""

    async def add(self, events: Sequence[OutboxEvent]) -> None:
        """Write events as rows of the transaction."""


class OutboxCall(Protocol):
    """A call of a handler whose outputs are events of an outbox."""

    def around(self, transaction: OutboxTransaction) -> AbstractAsyncContextManager[Any]:
        """Return the block that the handler enters in place of *transaction*."""


OUTBOX_CALL: ContextVar[OutboxCall | None] = ContextVar("reactive_kafka outbox call", default=None)
"""The call that runs in this context; None: its handler sends to no outbox."""
