"""Commits the positions of a checkpoint store to Kafka as well, for tools that look there and for a way back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from reactive_kafka.broker.client import Consumer
from reactive_kafka.broker.passing import CommittingConsumer
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.errors import BrokerError, MetadataTooLargeError, NotOwnerError
from reactive_kafka.observe.events import KafkaCommitFailed
from reactive_kafka.records import Committed, TopicPartition

DEADLINE_S = 5.0
"""How long a commit to Kafka may take."""


class KafkaMirror(CommittingConsumer):
    """Commits what the store is known to have, never more. Nothing depends on it.

    Args:
        interval_s: Between two commits; None: there is no group.
    """

    def __init__(self, inner: Consumer, rows: CheckpointRows, name: str, interval_s: float | None) -> None:
        super().__init__(inner, interval_s, f"commits to Kafka of {name}")
        self._rows = rows
        self._shares = rows.shares[name]
        self._failing: str | None = None  # why; each failure is told once

    async def _commit_moved(self) -> None:
        moved = {one: at for one, share in self._shares.items() if (at := share.not_in_kafka) is not None}
        if not moved:
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
            self._shares[partition].in_kafka = at

    async def _send(self, moved: Mapping[TopicPartition, Committed]) -> None:
        try:
            await self._inner.commit(moved, self._generation)
        except MetadataTooLargeError:  # the store has the string; Kafka needs only the position
            plain = {partition: Committed(at.offset) for partition, at in moved.items()}
            await self._inner.commit(plain, self._generation)
