"""A channel's checkpoint store, as its deliveries and commits see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, TypeVar

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.consumer import CheckpointConnector
from reactive_kafka.checkpoint.message_states import MessageStates
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.transaction import Transactions
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import (
    AlreadyStoredError,
    CheckpointError,
    CheckpointRefusedError,
    CheckpointStoreError,
    NotOwnerError,
    StoreAwayError,
)
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.delivery import D, Delivery, is_open
from reactive_kafka.verdicts.hook import Call, CallAgain
from reactive_kafka.verdicts.partition import verdicts_of

T = TypeVar("T")

_OF_THE_STORE = (StoreAwayError, CheckpointRefusedError, AlreadyStoredError, CheckpointStoreError)


class CheckpointHook:
    """A :class:`~reactive_kafka.verdicts.hook.DeliveryHook`: the store in one session of a channel.

    Args:
        rows: The session's rows.
        fail: Stops the channel, for the reason given.
        duplicates: Counts records that the store already had.
    """

    keeps_positions = True

    def __init__(
        self,
        settings: IncomingSettings,
        rows: CheckpointRows,
        codec: Codec,
        fail: Callable[[BaseException], object],
        duplicates: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._home = HomeLoop()
        self._states = MessageStates(settings, rows, codec, self._on_loop)
        self._transactions = Transactions(rows, fail, duplicates)
        self._duplicates = duplicates
        # Most of the hook's questions are for one of three parts, which have the methods as they are asked for.
        self.begins = rows.begin
        self.is_in_transaction = rows.is_in_transaction
        self.unstored = rows.unstored
        self.behind_s = rows.behind_s
        self.not_ready = rows.not_ready
        self.checkpoint = self._states.checkpoint
        self.on_nack = self._states.nacked
        self.check = self._transactions.open.check
        self.check_up_to = self._transactions.open.check_up_to
        self.refuse = self._transactions.refuse
        self.may_have_stored = self._transactions.may_have_stored
        self.find_out = self._transactions.find_out

    def reader(self, connector: Connector) -> Connector:
        """Makes clients whose positions are in the store."""
        assert self._settings.checkpoint is not None  # noqa: S101  # for the type checker
        return CheckpointConnector(connector, self._rows, self._settings.checkpoint.kafka_commit_interval_s)

    def around(self, call: Call) -> Call:
        """*call*, unless the store already has the delivery."""

        async def called(delivery: Any) -> Any:
            return await call(delivery) if self.before_call((delivery,)) else None

        return called

    def before_call(self, deliveries: Sequence[D]) -> Sequence[D]:
        """The deliveries that the store does not have. The others are settled."""
        new = [delivery for delivery in deliveries if not self._states.has_stored(delivery)]
        if len(new) < len(deliveries):
            self._duplicates(len(deliveries) - len(new))
            for delivery in deliveries:
                if self._states.has_stored(delivery):
                    verdicts_of(delivery.tracker).was_stored(delivery.index)
        self._states.begin_call(new)
        return new

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        """An error of the store's is no failure of the handler, not even if the handler's task group raises it."""
        if isinstance(error, BaseExceptionGroup):
            _, others = error.split(_OF_THE_STORE)
            return None if others is not None else self.may_call_again(error.exceptions[0])
        if not isinstance(error, _OF_THE_STORE):
            return None
        # An outage of the store is nobody's fault. Whatever else comes again and again is to become poison.
        is_away = isinstance(error, StoreAwayError) and error.by_store
        return CallAgain(if_settled=isinstance(error, AlreadyStoredError), ages=not is_away)

    def has_stored(self, delivery: Delivery) -> bool:
        """Whether a transaction has stored a delivery, and settled it since."""
        return not is_open(delivery) and self._states.has_stored(delivery)

    def transaction(self, deliveries: Sequence[Delivery]) -> AbstractAsyncContextManager[Any]:
        """A transaction that settles these deliveries.

        Raises:
            CheckpointError: The caller is not on the loop, a record is of a retry topic, or the store has none.
        """
        channel = self._settings.name
        if not self._home.is_here:
            raise CheckpointError(
                f"channel {channel!r}: a transaction needs the event loop, and a blocking handler runs in "
                "a thread: make the handler async"
            )
        for delivery in deliveries:
            if self._rows.clients.is_of_retries(delivery.tracker):
                raise CheckpointError(
                    f"channel {channel!r}: {delivery.topic_partition} is none of its partitions in the "
                    "checkpoint store: records of retry topics have no transaction"
                )
        return self._transactions.of(deliveries)

    def _on_loop(self, call: Callable[[], T]) -> T:
        return self._home.call(call, self._ended)

    def _ended(self) -> NoReturn:
        raise NotOwnerError(f"channel {self._settings.name!r} has ended: no partition is its own any more")
