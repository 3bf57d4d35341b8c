"""A channel's checkpoint store, as its deliveries and commits see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, TypeVar

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.consumer import CheckpointConnector
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.states import Codec, States
from reactive_kafka.checkpoint.transaction import Transactions
from reactive_kafka.commit.tracker import OffsetTracker
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
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import D, Delivery, is_open
from reactive_kafka.verdicts.delivery_hook import Call, CallAgain, MessageCheckpoint

T = TypeVar("T")

_OF_THE_STORE = (StoreAwayError, CheckpointRefusedError, AlreadyStoredError, CheckpointStoreError)


class CheckpointHook:
    """A :class:`~reactive_kafka.verdicts.delivery_hook.DeliveryHook`: the store in one session of a
    channel.
    """

    # Retry topics have no rows.
    covers_retries = False
    keeps_positions = True

    def __init__(
        self,
        settings: IncomingSettings,
        rows: CheckpointRows,
        codec: Codec,
        # Stops the channel, for the reason given.
        fail: Callable[[BaseException], object],
        # Counts records that the store already had.
        duplicates: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._codec = codec
        self._home = HomeLoop()
        self._transactions = Transactions(rows, fail, duplicates)
        self._duplicates = duplicates
        # Many of the hook's questions are for one of two parts, which have the methods as they are
        # asked for.
        self.begins = rows.begin
        self.unstored = rows.unstored
        self.behind_s = rows.behind_s
        self.not_ready = rows.not_ready
        self.check = self._transactions.open.check
        self.check_up_to = self._transactions.open.check_up_to
        self.refuse = self._transactions.refuse
        self.nack_at_end = self._transactions.nack_at_end
        self.may_have_stored = self._transactions.may_have_stored
        self.find_out = self._transactions.find_out

    def reader(self, connector: Connector) -> Connector:
        # For the type checker.
        assert self._settings.checkpoint is not None  # noqa: S101
        return CheckpointConnector(
            connector, self._rows, self._settings.checkpoint.kafka_commit_interval_s
        )

    def is_in_transaction(self, tracker: OffsetTracker) -> bool:
        claim = self._rows.of(tracker)
        return claim is not None and claim.is_in_transaction

    def around(self, call: Call) -> Call:

        async def called(delivery: Any) -> Any:
            return await call(delivery) if self.before_call((delivery,)) else None

        return called

    def before_call(self, deliveries: Sequence[D]) -> Sequence[D]:
        new = [delivery for delivery in deliveries if not self._is_stored(delivery)]
        if len(new) < len(deliveries):
            self._duplicates(len(deliveries) - len(new))
            for delivery in deliveries:
                if self._is_stored(delivery):
                    verdicts_of(delivery.tracker).settle(delivery.index)
        # What an earlier call has set for them is void.
        offsets: dict[OffsetTracker, list[int]] = {}
        for delivery in new:
            offsets.setdefault(delivery.tracker, []).append(delivery.offset)
        for tracker, its in offsets.items():
            if (claim := self._rows.of(tracker)) is not None:
                claim.states.begin(its)
        return new

    def may_call_again(self, error: BaseException) -> CallAgain | None:
        """An error of the store's is no failure of the handler, not even if the handler's task
        group raises it.
        """
        if isinstance(error, BaseExceptionGroup):
            _, others = error.split(_OF_THE_STORE)
            return None if others is not None else self.may_call_again(error.exceptions[0])
        if not isinstance(error, _OF_THE_STORE):
            return None
        # An outage of the store is nobody's fault. Whatever else comes again and again is to become
        # poison.
        is_away = isinstance(error, StoreAwayError) and error.by_store
        return CallAgain(if_settled=isinstance(error, AlreadyStoredError), ages=not is_away)

    def has_stored(self, delivery: Delivery) -> bool:
        return not is_open(delivery) and self._is_stored(delivery)

    def _is_stored(self, delivery: Delivery) -> bool:
        claim = self._mine(delivery)
        return claim is not None and claim.has_stored(delivery.offset)

    def _mine(self, delivery: Delivery) -> OwnedRow | None:
        return None if delivery.tracker.is_closed else self._rows.of(delivery.tracker)

    def transaction(
        self, deliveries: Sequence[Delivery], *, is_batch: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        channel = self._settings.name
        if not self._home.is_here:
            raise CheckpointError(
                f"channel {channel!r}: a transaction needs the event loop, and a blocking handler runs in "
                "a thread: make the handler async"
            )
        for delivery in deliveries:
            client = self._rows.client_of(delivery.tracker)
            if client is not None and client.is_for_retries:
                raise self._none_of_its(delivery, "transaction")
        return self._transactions.of(deliveries, is_batch=is_batch)

    def writes_letter(self, delivery: Delivery) -> None:
        return None

    def on_nack(self, delivery: Delivery) -> None:
        claim = self._rows.of(delivery.tracker)
        if claim is not None:
            claim.states.drop(delivery.offset)

    def checkpoint(self, delivery: Delivery) -> MessageCheckpoint:
        settings = self._settings
        if settings.ordering != "partition":
            raise CheckpointError(
                f"channel {settings.name!r}: a state follows the records of a partition one after the other: "
                f'it needs ordering = "partition", not "{settings.ordering}"'
            )
        if settings.keep_out_of_order_acks:
            raise CheckpointError(
                f"channel {settings.name!r}: with keep_out_of_order_acks the states of acks that are kept would be lost"
            )
        if verdicts_of(delivery.tracker).row is None and not delivery.tracker.is_closed:
            raise self._none_of_its(delivery, "state")
        return _StateOf(self, self._codec, delivery)

    def _none_of_its(self, delivery: Delivery, what: str) -> CheckpointError:
        return CheckpointError(
            f"channel {self._settings.name!r}: {delivery.topic_partition} is none of its partitions in the checkpoint "
            f"store: records of retry topics have no {what}"
        )

    def on_loop(self, call: Callable[[], T]) -> T:
        """What *call* returns or raises on the event loop, from any thread."""
        return self._home.call(call, self._ended)

    def _ended(self) -> NoReturn:
        raise NotOwnerError(
            f"channel {self._settings.name!r} has ended: no partition is its own any more"
        )

    def states_of(self, delivery: Delivery) -> States:
        """The states of the delivery's partition."""
        claim = self._mine(delivery)
        if claim is None:
            raise CheckpointRefusedError(
                f"{delivery!r}: its partition is not ours any more, nor is its state"
            )
        return claim.states


class _StateOf:
    """A :class:`~reactive_kafka.verdicts.delivery_hook.MessageCheckpoint`."""

    __slots__ = ("_codec", "_delivery", "_hook")

    def __init__(self, hook: CheckpointHook, codec: Codec, delivery: Delivery) -> None:
        self._hook = hook
        self._codec = codec
        self._delivery = delivery

    def get(self) -> Any:
        hook = self._hook
        delivery = self._delivery
        text = hook.on_loop(
            lambda: hook.states_of(delivery).get(delivery.offset, delivery.tracker.is_open)
        )
        return None if text is None else self._codec.decode(text)

    def set(self, state: Any) -> None:
        text = None if state is None else self._codec.encode(state)
        self._hook.on_loop(lambda: self._set(text))

    def _set(self, text: str | None) -> None:
        delivery = self._delivery
        states = self._hook.states_of(self._delivery)
        if not is_open(delivery):
            raise CheckpointError(f"{delivery!r} has its verdict: it sets no state any more")
        states.set(delivery.offset, delivery.index, text)
