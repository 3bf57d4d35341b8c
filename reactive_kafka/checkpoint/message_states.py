"""The states of partitions, as their deliveries read and set them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import CheckpointError, CheckpointRefusedError
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.hook import MessageCheckpoint

OnLoop = Callable[[Callable[[], Any]], Any]
"""Makes a call on the event loop, from any thread, and returns its answer."""


class MessageStates:
    """The states of one channel's partitions, as its deliveries see them."""

    def __init__(self, settings: IncomingSettings, rows: CheckpointRows, codec: Codec, on_loop: OnLoop) -> None:
        self.codec = codec
        self._settings = settings
        self._channel = settings.name
        self._rows = rows
        self.on_loop = on_loop

    def has_stored(self, delivery: Delivery) -> bool:
        """Whether the store is known to have a record."""
        claim = self._claim_of(delivery)
        return claim is not None and claim.has_stored(delivery.offset)

    def begin_call(self, messages: Sequence[Delivery]) -> None:
        """A handler is called with these deliveries: what an earlier call has set for them is void."""
        offsets: dict[OffsetTracker, list[int]] = {}
        for delivery in messages:
            offsets.setdefault(delivery.tracker, []).append(delivery.offset)
        for tracker, its in offsets.items():
            claim = self._rows.partitions.claim(tracker.partition)
            if claim is None or claim.tracker is not tracker:
                continue
            if len(its) == 1:
                claim.states.begin(its)
            else:
                claim.states.begin_batch(its)

    def nacked(self, delivery: Delivery) -> None:
        """A record was nacked: what it has set does not count."""
        claim = self._rows.partitions.claim(delivery.topic_partition)
        if claim is not None and claim.tracker is delivery.tracker:
            claim.states.drop(delivery.offset)

    def checkpoint(self, delivery: Delivery) -> MessageCheckpoint:
        """The state that a delivery sees.

        Raises:
            CheckpointError: The channel's settings rule out states, or the record is of a retry topic.
        """
        self._check_order()
        if self._rows.partitions.claim(delivery.tracker.partition) is None and not delivery.tracker.is_closed:
            raise CheckpointError(
                f"channel {self._channel!r}: {delivery.topic_partition} is none of its partitions in the checkpoint "
                "store: records of retry topics have no state"
            )
        return _StateOf(self, delivery)

    def _check_order(self) -> None:
        settings = self._settings
        if settings.ordering != "partition":
            raise CheckpointError(
                f"channel {self._channel!r}: a state follows the records of a partition one after the other: "
                f'it needs ordering = "partition", not "{settings.ordering}"'
            )
        if settings.keep_out_of_order_acks:
            raise CheckpointError(
                f"channel {self._channel!r}: with keep_out_of_order_acks the states of acks that are kept would be lost"
            )

    def text_for(self, delivery: Delivery) -> str | None:
        """The encoded state that a delivery sees.

        Raises:
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(delivery)
        if claim is None:
            raise CheckpointRefusedError(f"{delivery!r}: its partition is not ours any more, nor is its state")
        return claim.states.get(delivery.offset, delivery.tracker.is_open)

    def set_text(self, delivery: Delivery, text: str | None) -> None:
        """Set the state from a delivery on.

        Raises:
            CheckpointError: It has its verdict.
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(delivery)
        if claim is None:
            raise CheckpointRefusedError(f"{delivery!r}: its partition is not ours any more, nor is its state")
        if not is_open(delivery):
            raise CheckpointError(f"{delivery!r} has its verdict: it sets no state any more")
        claim.states.set(delivery.offset, delivery.index, text)

    def _claim_of(self, delivery: Delivery) -> OwnedRow | None:
        claim = self._rows.partitions.claim(delivery.tracker.partition)
        tracker = delivery.tracker
        return claim if claim is not None and claim.tracker is tracker and not tracker.is_closed else None


class _StateOf:
    """A :class:`~reactive_kafka.verdicts.hook.MessageCheckpoint`."""

    __slots__ = ("_message", "_states")

    def __init__(self, states: MessageStates, delivery: Delivery) -> None:
        self._states = states
        self._message = delivery

    def get(self) -> Any:
        """The state that the delivery sees."""
        text = self._states.on_loop(lambda: self._states.text_for(self._message))
        return None if text is None else self._states.codec.decode(text)

    def set(self, state: Any) -> None:
        """Set it; it takes effect with the delivery's ack."""
        text = None if state is None else self._states.codec.encode(state)
        self._states.on_loop(lambda: self._states.set_text(self._message, text))
