"""What a message asks of its partition's state, and what becomes of what it sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import CheckpointError, CheckpointRefusedError
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import MessageCheckpoint

OnLoop = Callable[[Callable[[], Any]], Any]
"""Makes a call on the event loop and returns its answer, from whatever thread."""


class MessageStates:
    """The states of one channel's partitions, as its messages see them."""

    def __init__(self, settings: IncomingSettings, rows: CheckpointRows, codec: Codec) -> None:
        self.codec = codec
        self._settings = settings
        self._channel = settings.name
        self._rows = rows

    def has_stored(self, message: Delivery) -> bool:
        """Whether an earlier transaction has stored a record, as far as is known."""
        claim = self._claim_of(message)
        return claim is not None and claim.has_stored(message.offset)

    def begin_call(self, messages: Sequence[Delivery]) -> None:
        """A handler is called with these messages, once or once more."""
        offsets: dict[OffsetTracker, list[int]] = {}
        for message in messages:
            offsets.setdefault(message.tracker, []).append(message.offset)
        for tracker, its in offsets.items():
            claim = self._rows.claim(tracker.partition)
            if claim is None or claim.tracker is not tracker:
                continue
            if len(its) == 1:
                claim.states.begin(its)
            else:
                claim.states.begin_batch(its)

    def nacked(self, tracker: OffsetTracker, offset: int) -> None:
        """A record has set nothing."""
        claim = self._rows.claim(tracker.partition)
        if claim is not None and claim.tracker is tracker:
            claim.states.drop(offset)

    def checkpoint(self, message: Delivery, on_loop: OnLoop) -> MessageCheckpoint:
        """The state as it is for a message.

        Raises:
            CheckpointError: The channel's settings leave no state, or the record comes from a retry topic.
        """
        self._check_order()
        if self._rows.claim(message.tracker.partition) is None and not message.tracker.is_closed:
            raise CheckpointError(
                f"channel {self._channel!r}: {message.topic_partition} is none of its partitions in the checkpoint "
                "store: records of retry topics have no state"
            )
        return _StateOf(self, message, on_loop)

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

    def text_for(self, message: Delivery) -> str | None:
        """The encoded state that a message sees.

        Raises:
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(message)
        if claim is None:
            raise CheckpointRefusedError(f"{message!r}: its partition is not ours any more, nor is its state")
        return claim.states.get(message.offset, message.tracker.is_open)

    def set_text(self, message: Delivery, text: str | None) -> None:
        """Note what a message sets.

        Raises:
            CheckpointError: It has its verdict.
            CheckpointRefusedError: Its partition is gone.
        """
        claim = self._claim_of(message)
        if claim is None:
            raise CheckpointRefusedError(f"{message!r}: its partition is not ours any more, nor is its state")
        if not message.tracker.is_open(message.index):
            raise CheckpointError(f"{message!r} has its verdict: it sets no state any more")
        claim.states.set(message.offset, message.index, text)

    def _claim_of(self, message: Delivery) -> OwnedRow | None:
        claim = self._rows.claim(message.tracker.partition)
        tracker = message.tracker
        return claim if claim is not None and claim.tracker is tracker and not tracker.is_closed else None


class _StateOf:
    """See :class:`~reactive_kafka.verdicts.message.MessageCheckpoint`."""

    __slots__ = ("_message", "_on_loop", "_states")

    def __init__(self, states: MessageStates, message: Delivery, on_loop: OnLoop) -> None:
        self._states = states
        self._message = message
        self._on_loop = on_loop

    def get(self) -> Any:
        """The state that the message sees."""
        text = self._on_loop(lambda: self._states.text_for(self._message))
        return None if text is None else self._states.codec.decode(text)

    def set(self, state: Any) -> None:
        """Set it, with the message's ack."""
        text = None if state is None else self._states.codec.encode(state)
        self._on_loop(lambda: self._states.set_text(self._message, text))
