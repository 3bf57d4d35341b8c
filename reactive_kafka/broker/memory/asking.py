"""What clients ask the in-memory broker for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from reactive_kafka.broker.memory.faults import Request
from reactive_kafka.broker.memory.log import PartitionLog
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.records import TopicPartition

T = TypeVar("T")


class MemoryQuestions:
    """Asks for one client; see :class:`reactive_kafka.broker.asking.Questions`.

    Args:
        log: The log of a partition, or raises where the client cannot ask for it.
        check_open: Raises where the client cannot ask anything.
    """

    def __init__(
        self, state: MemoryState, log: Callable[[TopicPartition], PartitionLog], check_open: Callable[[], None]
    ) -> None:
        self._state = state
        self._log = log
        self._check_open = check_open

    async def ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        """Carry out one call, with whatever fault waits for it."""
        self._check_open()
        return await self._state.faults.ask(call, effect, of)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.ask("beginning_offsets", lambda: {tp: self._log(tp).start for tp in partitions})

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.ask("end_offsets", lambda: {tp: self._log(tp).end for tp in partitions})

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return await self.ask(
            "offsets_for_times", lambda: {tp: self._log(tp).offset_at(time_ms) for tp, time_ms in times_ms.items()}
        )

    async def topics(self) -> dict[str, list[TopicPartition]]:
        return await self.ask("topics", self._state.partitions_by_topic)

    async def check(self) -> None:
        await self.ask("check", lambda: None)
