"""Commits the positions of a checkpoint store to Kafka as well, for tools that look there and for a way back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from reactive_kafka.broker.client import Consumer
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.errors import BrokerError, MetadataTooLargeError, NotOwnerError
from reactive_kafka.observe.events import KafkaCommitFailed
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tasks import Handle

DEADLINE_S = 5.0
"""How long a commit to Kafka may take."""


class KafkaPositions:
    """Commits what the store is known to have, never more. Nothing depends on it.

    Args:
        consumer: The client *name*, a member of the group.
        interval_s: Between two commits; None: there is no group, and nothing is committed.

    Attributes:
        generation: Of the client's assignment.
    """

    def __init__(self, consumer: Consumer, rows: CheckpointRows, name: str, interval_s: float | None) -> None:
        self.generation = -1
        self._consumer = consumer
        self._rows = rows
        self._name = name
        self._interval_s = interval_s
        self._failing: str | None = None
        self._one_at_a_time = asyncio.Lock()
        self._ticking: Handle | None = None
        self._ended_by: BaseException | None = None

    def start(self) -> None:
        """Begin to commit."""
        if (interval_s := self._interval_s) is not None:
            self._ticking = Handle(lambda: self._tick(interval_s), f"commits to Kafka of {self._name}", self._ended)

    async def close(self) -> None:
        """End the task, and commit a last time."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
            await asyncio.wait([ticking.task], timeout=DEADLINE_S)
            await self.commit()

    def check(self) -> None:
        """Raise what ended the task, if anything did. Each poll asks, or the error would go unnoticed."""
        if self._ended_by is not None:
            raise self._ended_by

    def _ended(self, error: BaseException) -> None:
        self._ended_by = error

    async def _tick(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self.commit()

    async def commit(self) -> None:
        """Try once to commit what has moved. A failure is reported once, and what it held is sent again next time."""
        async with self._one_at_a_time:
            shares = self._rows.shares[self._name]
            moved = {one: at for one, share in shares.items() if (at := share.not_in_kafka) is not None}
            if self._interval_s is None or not moved:
                return
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self._send(moved)
            except NotOwnerError:
                return  # the assignment is over: the next owner commits
            except (BrokerError, TimeoutError) as error:
                reason = str(error) or "no answer in time"
                if reason != self._failing:
                    self._failing = reason
                    self._rows.observer.on(KafkaCommitFailed(channel=self._rows.channel, reason=reason))
                return
            self._failing = None
            for partition, at in moved.items():
                shares[partition].in_kafka = at

    async def _send(self, moved: Mapping[TopicPartition, Committed]) -> None:
        try:
            await self._consumer.commit(moved, self.generation)
        except MetadataTooLargeError:  # the store has the string; Kafka needs only the position
            plain = {partition: Committed(at.offset) for partition, at in moved.items()}
            await self._consumer.commit(plain, self.generation)
