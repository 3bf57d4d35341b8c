"""Measures the operations of channels: calls of handlers, receives, commits, sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Any

from reactive_kafka.broker.client import Producer, TransactionalProducer, WrittenBatch
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracing.attributes import (
    ERROR_TYPE,
    GROUP,
    NAME,
    OPERATION_NAME,
    OPERATION_TYPE,
    OPERATION_TYPES,
    PARTITION,
    SYSTEM,
    TOPIC,
    Attributes,
    Operation,
    error_type,
)
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.meter import MessagingMeter
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import Delivery, is_called_again
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.later import failure_in

Now = Callable[[], float]
"""Returns the monotonic time, in seconds."""

MOST_KEPT = 10_000
"""How many sets of attributes are kept for the next measurement. A pattern's topics may come and go
for ever, so there is a bound.
"""


class MetricAttributes:
    """The attributes of the measurements of one operation. Equal ones are one object.

    Args:
        cluster: The Kafka cluster; None: it is a memory channel.
        has_type: Whether the metric has the type of the operation besides its name.
    """

    def __init__(
        self,
        operation: Operation,
        cluster: ClusterAttributes | None,
        group_id: str | None = None,
        *,
        has_type: bool = False,
    ) -> None:
        own: dict[str, str | int | bool] = {
            SYSTEM: NAME if cluster is None else "kafka",
            OPERATION_NAME: operation,
        }
        if cluster is not None:
            own.update(cluster.server)
        if has_type:
            own[OPERATION_TYPE] = OPERATION_TYPES[operation]
        if group_id is not None:
            own[GROUP] = group_id
        self._own = own
        self._kept: dict[tuple[TopicPartition | str | None, str | None], Attributes] = {}

    def of(
        self, place: TopicPartition | str | None, error: BaseException | None = None
    ) -> Attributes:
        """Return the attributes of a measurement.

        Args:
            place: The partition; the topic, if there are several partitions of it; None: there are
                several topics.
        """
        failure = failure_in(error)
        key = place, None if failure is None else error_type(failure)
        attributes = self._kept.get(key)
        if attributes is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            attributes = self._kept[key] = self._made(*key)
        return attributes

    def _made(self, place: TopicPartition | str | None, error: str | None) -> Attributes:
        made = dict(self._own)
        if isinstance(place, TopicPartition):
            made[TOPIC] = place.topic
            made[PARTITION] = str(place.partition)
        elif place is not None:
            made[TOPIC] = place
        if error is not None:
            made[ERROR_TYPE] = error
        return made


def place_of(partitions: Iterable[TopicPartition]) -> TopicPartition | str | None:
    """Return the one partition, or else the one topic, or else None."""
    known = set(partitions)
    if len(known) == 1:
        return known.pop()
    topics = {partition.topic for partition in known}
    return topics.pop() if len(topics) == 1 else None


class Timed:
    """A block that measures how long it takes. An error that leaves it counts as its failure."""

    __slots__ = ("_began", "_measure", "_now")

    def __init__(self, now: Now, measure: Callable[[float, BaseException | None], None]) -> None:
        self._now = now
        self._measure = measure

    def __enter__(self) -> None:
        self._began = self._now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            # The caller stopped reading the values of a handler that yields. That is no failure.
            error = None
        self._measure(self._now() - self._began, error)


class CallMetrics:
    """Measures the calls of one incoming channel, each attempt by itself."""

    def __init__(
        self,
        meter: MessagingMeter,
        cluster: ClusterAttributes | None,
        group_id: str | None,
        now: Now,
    ) -> None:
        self._meter = meter
        self._now = now
        self._attributes = MetricAttributes("process", cluster, group_id)

    def around(self, call: Call) -> Call:
        """Return a call that does the same and is measured. It takes a message or a batch."""

        async def measured_call(argument: Any) -> Any:
            place: TopicPartition | str | None
            if isinstance(argument, Batch):
                place = place_of(message.topic_partition for message in argument)
                first = argument[0]
                count = len(argument)
            else:
                place = argument.topic_partition
                first = argument
                count = 1
            with self.of_many(place, count, is_first=not is_called_again(first)):
                return await call(argument)

        return measured_call

    def of_many(self, place: TopicPartition | str | None, count: int, *, is_first: bool) -> Timed:
        """Return the block that is one call.

        Args:
            place: As of :meth:`MetricAttributes.of`.
            count: The number of records.
            is_first: It is the first call for these records. Only that one delivers them.
        """
        if is_first:
            self._meter.consumed(count, self._attributes.of(place))

        def measure(duration_s: float, error: BaseException | None) -> None:
            self._meter.processed(duration_s, self._attributes.of(place, error))

        return Timed(self._now, measure)


class ReceiveMetrics:
    """Measures the messages that an application takes from a channel by itself."""

    def __init__(
        self, meter: MessagingMeter, cluster: ClusterAttributes, group_id: str | None
    ) -> None:
        self._meter = meter
        self._receives = MetricAttributes("receive", cluster, group_id, has_type=True)
        self._messages = MetricAttributes("receive", cluster, group_id)

    def received(self, message: Delivery, waited_s: float) -> None:
        """Count a message that the application has waited for."""
        partition = message.topic_partition
        self._meter.operation(waited_s, self._receives.of(partition))
        self._meter.consumed(1, self._messages.of(partition))


class CommitMetrics:
    """Measures the commit requests of one incoming channel."""

    def __init__(
        self, meter: MessagingMeter, cluster: ClusterAttributes, group_id: str | None, now: Now
    ) -> None:
        self._meter = meter
        self._now = now
        self._attributes = MetricAttributes("commit", cluster, group_id, has_type=True)

    def around(self, partitions: Collection[TopicPartition]) -> Timed:
        """Return the block that is the commit of these partitions."""
        place = place_of(partitions)

        def measure(duration_s: float, error: BaseException | None) -> None:
            self._meter.operation(duration_s, self._attributes.of(place, error))

        return Timed(self._now, measure)


class SendMetrics:
    """Measures the requests of one producer. A request may have several records."""

    def __init__(self, meter: MessagingMeter, cluster: ClusterAttributes, now: Now) -> None:
        self._meter = meter
        self._now = now
        self._sends = MetricAttributes("send", cluster, has_type=True)
        self._messages = MetricAttributes("send", cluster)

    async def write(
        self, producer: Producer | TransactionalProducer, to: TopicPartition, records: Any
    ) -> WrittenBatch:
        """Write with a producer, and measure it. Raises as ``Producer.write`` does."""
        began = self._now()
        try:
            written = await producer.write(to, records)
        except Exception as error:
            self._sent(to, len(records), self._now() - began, error)
            raise
        self._sent(to, written.count, self._now() - began, None)
        return written

    def _sent(
        self, to: TopicPartition, messages: int, duration_s: float, error: Exception | None
    ) -> None:
        self._meter.operation(duration_s, self._sends.of(to, error))
        self._meter.sent(messages, self._messages.of(to, error))
