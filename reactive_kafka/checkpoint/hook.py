"""A channel's checkpoint store, as its deliveries and commits see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, TypeVar

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.channel_rows import CheckpointRows
from reactive_kafka.checkpoint.consumer import CheckpointConnector
from reactive_kafka.checkpoint.outbox import OutboxStore, Relay, StoreOutboxTransaction
from reactive_kafka.checkpoint.owned_row import OwnedRow, committed_of
from reactive_kafka.checkpoint.state_codec import StateCodec
from reactive_kafka.checkpoint.state_history import StateHistory
from reactive_kafka.checkpoint.store_transactions import StoreTransactions
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import (
    AlreadyStoredError,
    CheckpointError,
    CheckpointRefusedError,
    CheckpointStoreError,
    NotOwnerError,
    StoreAwayError,
)
from reactive_kafka.observe.facts import OutboxFacts
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import D, Delivery, is_open
from reactive_kafka.verdicts.delivery_hook import Call, CallAgain, MessageCheckpoint
from reactive_kafka.verdicts.outbox import OUTBOX_CALL

T = TypeVar("T")

_STORE_ERRORS = (StoreAwayError, CheckpointRefusedError, AlreadyStoredError, CheckpointStoreError)


class CheckpointHook:
    """A :class:`~reactive_kafka.verdicts.hook.DeliveryHook` for one session of a channel.

    Args:
        settings: The channel's settings.
        rows: Its rows in the store.
        codec: Encodes and decodes its states.
        fail: Stops the channel, for the reason given.
        duplicates: Counts records that the store already had.
        relay: Relays the events of the channel's outbox; None: it has none.
    """

    # Retry topics have no rows.
    covers_retries = False
    runs_in_order = False
    keeps_positions = True

    def __init__(
        self,
        settings: IncomingSettings,
        rows: CheckpointRows,
        codec: StateCodec,
        fail: Callable[[BaseException], object],
        duplicates: Callable[[int], None],
        relay: Relay | None = None,
    ) -> None:
        self._settings = settings
        self._relay = relay
        self._rows = rows
        self._codec = codec
        self._home = HomeLoop()
        self._transactions = StoreTransactions(rows, fail, duplicates)
        self._duplicates = duplicates
        # These methods of the protocol are those of a part.
        self.unstored = rows.unstored
        self.behind_s = rows.behind_s
        self.check = self._transactions.open.check
        self.check_up_to = self._transactions.open.check_up_to
        self.refuse = self._transactions.refuse
        self.nack_at_end = self._transactions.nack_at_end
        self.may_have_stored = self._transactions.may_have_stored
        self.find_out = self._transactions.find_out

    def reader(self, connector: Connector) -> Connector:
        # A channel without these settings has no hook; the type checker cannot know.
        assert self._settings.checkpoint is not None  # noqa: S101
        return CheckpointConnector(
            connector, self._rows, self._settings.checkpoint.kafka_commit_interval_s
        )

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        self._rows.begin(tracker, owner)
        if self._relay is not None:
            self._relay.begin()

    async def stored_positions(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        rows = await self._rows.read(partitions)
        return {partition: committed_of(row) for partition, row in rows.items()}

    def not_ready(self) -> list[str]:
        reasons = self._rows.not_ready()
        if self._relay is not None:
            reasons += self._relay.not_ready()
        return reasons

    def outbox(self) -> OutboxFacts | None:
        return None if self._relay is None else self._relay.facts()

    def is_relayed(self) -> bool:
        return self._relay is None or self._relay.rows() == 0

    async def flush(self, deadline: float) -> None:
        if self._relay is not None:
            await self._relay.flush(deadline)

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()

    def is_in_transaction(self, tracker: OffsetTracker) -> bool:
        owned = self._rows.of(tracker)
        return owned is not None and owned.is_in_transaction

    def around(self, call: Call) -> Call:

        async def called(delivery: Any) -> Any:
            if not self.before_call((delivery,)):
                return None
            return await call(delivery)

        return called

    def before_call(self, deliveries: Sequence[D]) -> Sequence[D]:
        new = [delivery for delivery in deliveries if not self._is_stored(delivery)]
        if len(new) < len(deliveries):
            self._duplicates(len(deliveries) - len(new))
            for delivery in deliveries:
                if self._is_stored(delivery):
                    verdicts_of(delivery.tracker).settle(delivery.index)
        self._drop_states_of_earlier_calls(new)
        return new

    def _drop_states_of_earlier_calls(self, deliveries: Sequence[D]) -> None:
        offsets_by_tracker: dict[OffsetTracker, list[int]] = {}
        for delivery in deliveries:
            offsets_by_tracker.setdefault(delivery.tracker, []).append(delivery.offset)
        for tracker, offsets in offsets_by_tracker.items():
            owned = self._rows.of(tracker)
            if owned is not None:
                owned.states.begin(offsets)

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        """Return how to call again after an error of the store; None: the handler has failed.

        An error of the store is not the handler's failure, not even if a task group of the handler
        raises it.
        """
        if isinstance(error, BaseExceptionGroup):
            _, others = error.split(_STORE_ERRORS)
            if others is not None:
                return None
            return self.may_call_again(error.exceptions[0])
        if not isinstance(error, _STORE_ERRORS):
            return None
        # Records do not age during an outage of the store. With any other error they do, so that
        # one that never succeeds becomes poison.
        is_away = isinstance(error, StoreAwayError) and error.by_store
        return CallAgain(if_settled=isinstance(error, AlreadyStoredError), ages=not is_away)

    def has_stored(self, delivery: Delivery) -> bool:
        return not is_open(delivery) and self._is_stored(delivery)

    def _is_stored(self, delivery: Delivery) -> bool:
        owned = self._owned(delivery)
        return owned is not None and owned.has_stored(delivery.offset)

    def _owned(self, delivery: Delivery) -> OwnedRow | None:
        """Return the row of the delivery's partition, if the partition is still ours."""
        if delivery.tracker.is_closed:
            return None
        return self._rows.of(delivery.tracker)

    def transaction(
        self, deliveries: Sequence[Delivery], *, is_batch: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        channel = self._settings.name
        if not self._home.is_here:
            raise CheckpointError(
                f"channel {channel!r}: a transaction needs the event loop, and a blocking handler "
                "runs in a thread: make the handler async"
            )
        for delivery in deliveries:
            client = self._rows.client_of(delivery.tracker)
            if client is not None and client.is_for_retries:
                raise self._no_row_error(delivery, "transaction")
        call = OUTBOX_CALL.get()
        if call is None or self._relay is None:
            return self._transactions.of(deliveries, is_batch=is_batch)
        transaction = self._transactions.of(
            deliveries, is_batch=is_batch, why_full=self._relay.why_full
        )
        store = self._rows.store
        # Start-up refuses an outbox with another store.
        assert isinstance(store, OutboxStore)  # noqa: S101
        return call.around(
            StoreOutboxTransaction(
                transaction,
                store,
                self._rows.group,
                # The rows of a batch of several partitions have one owner.
                min(delivery.topic_partition for delivery in deliveries),
                deliveries[0].record if len(deliveries) == 1 else None,
                self._relay,
            )
        )

    def writes_letter(self, delivery: Delivery) -> None:
        return None

    def on_nack(self, delivery: Delivery) -> None:
        owned = self._rows.of(delivery.tracker)
        if owned is not None:
            owned.states.drop(delivery.offset)

    def checkpoint(self, delivery: Delivery) -> MessageCheckpoint:
        settings = self._settings
        if settings.ordering != "partition":
            raise CheckpointError(
                f"channel {settings.name!r}: a state follows the records of a partition one after "
                f'the other: it needs ordering = "partition", not "{settings.ordering}"'
            )
        if settings.keep_out_of_order_acks:
            raise CheckpointError(
                f"channel {settings.name!r}: with keep_out_of_order_acks the states of acks that "
                "are kept would be lost"
            )
        if verdicts_of(delivery.tracker).row is None and not delivery.tracker.is_closed:
            raise self._no_row_error(delivery, "state")
        return _StateOfMessage(self, self._codec, delivery)

    def _no_row_error(self, delivery: Delivery, what: str) -> CheckpointError:
        return CheckpointError(
            f"channel {self._settings.name!r}: {delivery.topic_partition} is none of its "
            f"partitions in the checkpoint store: records of retry topics have no {what}"
        )

    def on_loop(self, call: Callable[[], T]) -> T:
        """Make *call* on the event loop, from any thread; return or raise what it does."""
        return self._home.call(call, self._raise_ended)

    def _raise_ended(self) -> NoReturn:
        raise NotOwnerError(
            f"channel {self._settings.name!r} has ended: no partition is its own any more"
        )

    def states_of(self, delivery: Delivery) -> StateHistory:
        """Return the states of the delivery's partition.

        Raises:
            CheckpointRefusedError: The partition is not ours any more.
        """
        owned = self._owned(delivery)
        if owned is None:
            raise CheckpointRefusedError(
                f"{delivery!r}: its partition is not ours any more, nor is its state"
            )
        return owned.states


class _StateOfMessage:
    """A :class:`~reactive_kafka.verdicts.hook.MessageCheckpoint`."""

    __slots__ = ("_codec", "_delivery", "_hook")

    def __init__(self, hook: CheckpointHook, codec: StateCodec, delivery: Delivery) -> None:
        self._hook = hook
        self._codec = codec
        self._delivery = delivery

    def get(self) -> Any:
        text = self._hook.on_loop(self._get)
        return None if text is None else self._codec.decode(text)

    def _get(self) -> str | None:
        delivery = self._delivery
        states = self._hook.states_of(delivery)
        return states.get(delivery.offset, delivery.tracker.is_open)

    def set(self, state: Any) -> None:
        text = None if state is None else self._codec.encode(state)
        self._hook.on_loop(lambda: self._set(text))

    def _set(self, text: str | None) -> None:
        delivery = self._delivery
        states = self._hook.states_of(delivery)
        if not is_open(delivery):
            raise CheckpointError(f"{delivery!r} has its verdict: it sets no state any more")
        states.set(delivery.offset, delivery.index, text)
