"""The spans of one channel's calls: of a handler with a message or a batch, and of a Spark
function.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.tracing.names import (
    ATTEMPT,
    COUNT,
    MOST_LINKS,
    TOPIC,
    UNLINKED,
    Place,
    of_channel,
    of_content,
    of_place,
)
from reactive_kafka.tracing.tracer import Current, Tracing
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message


class CallSpans:
    """Makes a span of each call; *is_kafka* False: of a memory channel's handler."""

    def __init__(
        self, tracing: Tracing, settings: IncomingSettings, *, is_kafka: bool = True
    ) -> None:
        self._tracing = tracing
        self._name = settings.name
        self._is_kafka = is_kafka
        client_id = settings.client.get("client_id")
        self._own = of_channel(
            settings.name,
            "process",
            is_kafka=is_kafka,
            group_id=settings.group_id,
            client_id=client_id,
        )

    def around(self, call: Call) -> Call:
        """A call that takes a message or a batch, in a span."""

        async def called(given: Message[Any] | Batch[Any]) -> Any:
            with self._of_batch(given) if isinstance(given, Batch) else self._of_message(given):
                return await call(given)

        return called

    def _of_message(self, message: Message[Any]) -> Current:
        record = message.record
        partition = message.topic_partition
        attributes = {
            **self._own,
            **(of_place(partition, record.offset) if self._is_kafka else {TOPIC: partition.topic}),
            **of_content(record.key, is_tombstone=record.value is None),
            ATTEMPT: message.attempt,
        }
        tracing = self._tracing
        parent = self._tracing.context_in(record.headers)
        span = tracing.begin(f"process {partition.topic}", tracing.consumer, attributes, parent)
        return tracing.current(span, parent)

    def _of_batch(self, batch: Batch[Any]) -> Current:
        places = (Place(one.topic_partition, one.offset, one.record.headers) for one in batch)
        return self.of_many({one.topic for one in batch}, len(batch), places, batch[0].attempt)

    def of_many(
        self, topics: Iterable[str], count: int, places: Iterable[Place], attempt: int
    ) -> Current:
        """Of one call for *count* records, with links to the contexts of those in *places*, as far
        as they go.
        """
        tracing = self._tracing
        known = sorted(topics)
        links = tracing.links(places, MOST_LINKS)
        attributes = {**self._own, COUNT: count, ATTEMPT: attempt}
        if len(known) == 1:
            attributes[TOPIC] = known[0]
        if len(links) < count:
            attributes[UNLINKED] = count - len(links)
        name = known[0] if len(known) == 1 else self._name
        span = tracing.begin(
            f"process {name}", tracing.consumer, attributes, tracing.nothing, links
        )
        return tracing.current(span, tracing.nothing)
