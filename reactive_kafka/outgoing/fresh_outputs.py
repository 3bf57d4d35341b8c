"""Sends results only while the partition of their record is ours: ``stale_results = "drop"``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from reactive_kafka.outgoing.handler_outputs import Outputs
from reactive_kafka.outgoing.output_routing import PutValue
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.message import Message

Run = Callable[[PutValue], Awaitable[None]]
"""Runs a generator, and puts each value that it yields."""


class FreshOutputs:
    """Sends what one handler returns, unless the partition of its record is gone.

    The next owner handles such a record again, and sends its own result. Between a revocation and
    the next assignment it is not known whether the partition is gone, so a result waits for that.

    Args:
        outputs: Sends the results.
        yields: The handler is a generator, and each of its values is looked at.
        dropped: Called with the message of a result that is not sent; of a batch with the first.
    """

    def __init__(
        self, outputs: Outputs, *, yields: bool, dropped: Callable[[Message[Any]], None]
    ) -> None:
        self._outputs = outputs
        self._yields = yields
        self._dropped = dropped

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`at_once` sends most results."""
        return self._outputs.is_quick

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send a result at once if its partition is ours. As :meth:`Outputs.at_once`."""
        if tracker.is_closed or verdicts_of(tracker).is_held:
            return False
        return self._outputs.at_once(result, record, tracker, index)

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send the result of a message, or drop it. As :meth:`Outputs.answer`."""
        if self._yields:
            await self._outputs.answer(self._looking(result, (message,)), message)
        elif result is None or await self._is_ours((message,)):
            await self._outputs.answer(result, message)

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send the result of a batch, unless all of its partitions are gone, or drop it.

        As :meth:`Outputs.answer_batch`.
        """
        if self._yields:
            await self._outputs.answer_batch(self._looking(result, batch), batch)
        elif result is None or await self._is_ours(batch):
            await self._outputs.answer_batch(result, batch)

    async def write(self, result: Any, message: Message[Any]) -> None:
        """Send the result of one handler of a broadcast, or drop it. As :meth:`Outputs.write`."""
        if self._yields:
            await self._outputs.write(self._looking(result, (message,)), message)
        elif result is None or await self._is_ours((message,)):
            await self._outputs.write(result, message)

    def _looking(self, run: Run, messages: Iterable[Message[Any]]) -> Run:
        """Return *run*, ended before the first value that would be sent too late."""

        async def looking(put: PutValue) -> None:
            async def put_fresh(value: Any) -> bool:
                # True ends the generator.
                return await put(value) if await self._is_ours(messages) else True

            await run(put_fresh)

        return looking

    async def _is_ours(self, messages: Iterable[Message[Any]]) -> bool:
        """Return whether one of the partitions is ours, once that is known; else report a drop."""
        first: dict[OffsetTracker, Message[Any]] = {}
        for message in messages:
            first.setdefault(message.tracker, message)
        for tracker in first:
            if await _is_open(tracker):
                return True
        self._dropped(next(iter(first.values())))
        return False


async def _is_open(tracker: OffsetTracker) -> bool:
    """Return whether a partition is ours; after a revocation wait for the next assignment."""
    verdicts = verdicts_of(tracker)
    while verdicts.is_held and not tracker.is_closed:
        with not_ageing():
            await verdicts.answer_later(lambda: verdicts.channel.futures.yes)
    return not tracker.is_closed
