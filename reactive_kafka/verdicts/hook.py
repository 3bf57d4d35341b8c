"""What the verdicts of a channel ask of its checkpoint store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import D, Delivery
from reactive_kafka.verdicts.message import MessageCheckpoint


class OpenTransactions(Protocol):
    """The open transactions of one channel; True while there is one."""

    def __len__(self) -> int: ...

    def check(self, tracker: OffsetTracker, index: int) -> None:
        """A verdict is given on a record.

        Raises:
            CheckpointError: It is in an open transaction.
        """

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        """The same of a record and those before it."""


class Stored(Protocol):
    """The store, as it is for the messages of one channel."""

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """A partition is read with this tracker from here on, by the client of this name."""

    def begin_call(self, messages: Sequence[D]) -> Sequence[D]:
        """Those that a handler is to get; what the store has already is settled."""

    def checkpoint(self, message: Delivery) -> MessageCheckpoint:
        """See :attr:`reactive_kafka.Message.checkpoint`."""

    def transaction(self, messages: Sequence[Delivery]) -> AbstractAsyncContextManager[Any]:
        """See :meth:`reactive_kafka.Message.transaction`."""

    def nacked(self, tracker: OffsetTracker, offset: int) -> None:
        """A record has set no state."""

    def refuse(self, message: Delivery) -> None:
        """A message that may be in an open transaction gets another verdict."""

    def has_stored(self, message: Delivery) -> bool:
        """Whether a transaction has stored a message, which is settled since."""

    def may_have_stored(self, message: Delivery) -> bool:
        """Whether a transaction has tried to store a message that is without a verdict."""

    async def find_out(self, message: Delivery) -> None:
        """Have it told whether it has.

        Raises:
            BrokerError: The partition or the channel goes before the store answers.
        """
