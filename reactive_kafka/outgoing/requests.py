"""Requests of one outgoing channel that wait for replies, and the reader of the topic in which
these arrive.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from anyio import CancelScope

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer, Poll, start_without_group
from reactive_kafka.clock import Clock
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.schema import OutgoingSettings
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    DecodeError,
    FatalBrokerError,
    OffsetOutOfRangeError,
    ReplyTimeoutError,
    TransientBrokerError,
)
from reactive_kafka.formats import (
    RecordDecoder,
    SchemaSource,
    decoder_for,
    record_decoder_for,
    refused_tombstone,
)
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.outgoing.outbox import Gathering, Outbound
from reactive_kafka.outgoing.replies import correlation_id_of, request_headers
from reactive_kafka.outgoing.transactional import TransactionalWriter
from reactive_kafka.outgoing.writer import Writer
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.subscription import Partitions
from reactive_kafka.tasks import Spawn, is_set_within
from reactive_kafka.verdicts.ageing import not_ageing

logger = logging.getLogger("reactive_kafka")

BACKOFF = Backoff(0.25, 5.0)
POLL_S = 1.0
# Of a partition, a poll.
MOST_RECORDS = 500
# A reader that does not end is left behind.
CLOSED_S = 10.0
LOOK_EVERY_S = 2.0
"""Between two looks for new partitions of the reply topic, while requests wait."""
MOST_LATE = 1_000
"""So many requests that were given up are remembered, to tell their replies from those of other
processes.
"""


class Requests:
    """Sends requests of one channel, at most its ``max_in_flight`` at a time, and brings them their
    replies.

    The reader of the reply topic begins with the first request, and is kept. It belongs to no
    group, and reads what arrives from then on in all partitions. Processes may share the topic:
    each takes the replies to its own requests.
    """

    def __init__(
        self,
        settings: OutgoingSettings,
        connector: Connector,
        writer: Writer | TransactionalWriter,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
        *,
        partitions: Callable[[str], Awaitable[int]],
    ) -> None:
        self._settings = settings
        self.topic = settings.reply_topic or f"{settings.topic}-replies"
        self._connector = connector
        self._writer = writer
        # Of a topic; the broker may create it for the question.
        self._partitions = partitions
        self._clock = clock
        self._outages = OutageReports(settings.name, observer)
        self._spawn = spawn
        self._places = asyncio.Semaphore(settings.max_in_flight)
        self._pending: dict[bytes, Future[RawRecord]] = {}
        # Ids of requests that were given up.
        self._late: OrderedDict[bytes, None] = OrderedDict()
        # It is known from where replies are read; or the channel has stopped.
        self._ready = asyncio.Event()
        # Of the reader; None: it has not begun.
        self._scope: CancelScope | None = None
        self._ended = asyncio.Event()
        self._is_closed = False
        # Why replies are not read.
        self._problem: str | None = None

    async def ask(self, outbound: Outbound, timeout_s: float) -> RawRecord:
        """Send a request, and wait for its reply.

        Raises:
            ReplyTimeoutError: There is none after *timeout_s*.
            RejectedRecordError: The request can never be written.
            ChannelClosedError: The channel stops, or has.

        Cancellation:
            The request is not written, unless that has begun. Its reply is dropped.
        """
        correlation_id = uuid4().hex.encode()
        headers = request_headers(outbound.record.headers, self.topic, correlation_id)
        outbound = outbound._replace(record=outbound.record._replace(headers=headers))
        answered: Future[RawRecord] = asyncio.get_running_loop().create_future()
        # Only a failure of the write counts: that it is written tells nothing of the reply.
        receipt = Gathering(lambda error: None if error is None else _fail(answered, error))
        try:
            async with asyncio.timeout(timeout_s), self._places:
                self._begin()
                self._pending[correlation_id] = answered
                with not_ageing():
                    await self._ready.wait()
                    if not answered.done():
                        await self._writer.put(outbound, receipt)
                        receipt.seal()
                return await answered
        except TimeoutError:
            if not answered.done() or answered.cancelled():
                why = self._problem or self._writer.facts().broker_error
                because = f": {why}" if why else ""
                late = ReplyTimeoutError(
                    f"{outbound.topic}: no reply in {self.topic} within {timeout_s:g} s{because}"
                )
                late.by_outage = why is not None
                raise late from None
            # It came in the moment in which the time was over.
            return answered.result()
        finally:
            receipt.void()
            self._over(correlation_id, answered)

    def _over(self, correlation_id: bytes, answered: Future[RawRecord]) -> None:
        """Nobody waits for a request any more."""
        if self._pending.pop(correlation_id, None) is not None:
            self._late[correlation_id] = None
            if len(self._late) > MOST_LATE:
                self._late.popitem(last=False)
        if answered.done() and not answered.cancelled():
            # Looked at, where the channel stopped while the write itself raised.
            answered.exception()

    def _begin(self) -> None:
        if self._is_closed:
            raise _closed(self._settings.name)
        if self._scope is None:
            self._scope = CancelScope()
            self._spawn(partial(self._run, self._scope), f"replies of {self._settings.name}")

    async def close(self) -> None:
        """Fail what waits, and close the reader."""
        self._is_closed = True
        for answered in self._pending.values():
            _fail(answered, _closed(self._settings.name))
        self._ready.set()
        if self._scope is not None:
            self._scope.cancel()
            # Its client has a deadline of its own.
            await is_set_within(self._ended, CLOSED_S)

    async def _run(self, scope: CancelScope) -> None:
        """Read replies, and begin again with another client where one cannot."""
        # Kept from one client to the next, so that no reply is lost.
        positions: dict[TopicPartition, int] = {}
        waits = Waits(BACKOFF)
        try:
            with scope:
                partitions = 0
                while True:
                    try:
                        partitions = partitions or await self._partitions(self.topic)
                        partitions = await self._read(partitions, positions, waits)
                    except BrokerError as error:
                        self._away(error)
                        await asyncio.sleep(waits.next_s())
        finally:
            self._ended.set()

    async def _read(
        self, partitions: int, positions: dict[TopicPartition, int], waits: Waits
    ) -> int:
        """Read these partitions, until the topic has another number of them, which is returned."""
        reading = [TopicPartition(self.topic, number) for number in range(partitions)]
        properties = {
            name: value
            for name, value in self._settings.client.items()
            if "consumer" in SIDES.get(name, ())
        }
        name = f"{self._settings.name}-replies"
        there = Partitions(tuple(reading))
        consumer = self._connector.consumer(
            name=name, subscription=there, group_id=None, properties=properties
        )
        try:
            await start_without_group(consumer)
            new = [one for one in reading if one not in positions]
            # What comes to exist after the first request can hold nothing older than that.
            where = consumer.beginning_offsets if self._ready.is_set() else consumer.end_offsets
            positions.update(await where(new))
            consumer.start_at({one: positions[one] for one in reading})
            self._ready.set()
            began = looked = self._clock.monotonic()
            while True:
                poll = await consumer.poll(dict.fromkeys(reading, MOST_RECORDS), POLL_S)
                self._back()
                if self._clock.monotonic() - began >= BACKOFF.last_s:
                    # To have connected is none: a client may break at each of its first polls.
                    waits.progressed()
                self._take(poll, positions)
                for one, error in poll.errors.items():
                    await self._restart(consumer, one, error, positions)
                if self._pending and self._clock.monotonic() - looked >= LOOK_EVERY_S:
                    there_now = len((await consumer.topics()).get(self.topic, ()))
                    if there_now not in (0, partitions):
                        return there_now
                    looked = self._clock.monotonic()
        finally:
            with CancelScope(shield=True):
                await consumer.stop()

    def _take(self, poll: Poll, positions: dict[TopicPartition, int]) -> None:
        for chunk in poll.chunks:
            for record in chunk.records:
                self._reply(record)
            positions[chunk.partition] = chunk.next_offset

    def _reply(self, record: RawRecord) -> None:
        correlation_id = correlation_id_of(record.headers)
        if correlation_id is None:
            return
        answered = self._pending.pop(correlation_id, None)
        if answered is not None and not answered.done():
            answered.set_result(record)
        elif correlation_id in self._late:
            del self._late[correlation_id]
            logger.debug(
                "%s: a reply came too late, and is dropped: %s",
                self._settings.name,
                correlation_id.decode(),
            )

    async def _restart(
        self,
        consumer: Consumer,
        one: TopicPartition,
        error: BrokerError,
        positions: dict[TopicPartition, int],
    ) -> None:
        """Go on in a partition behind what cannot be read; raises where another client may read
        it.
        """
        if isinstance(error, TransientBrokerError | FatalBrokerError):
            raise error
        logger.warning("%s: replies may be lost: %s", self._settings.name, error)
        where = (
            consumer.beginning_offsets
            if isinstance(error, OffsetOutOfRangeError)
            else consumer.end_offsets
        )
        positions.update(await where([one]))
        consumer.start_at({one: positions[one]})

    def _away(self, error: BrokerError) -> None:
        self._problem = str(error)
        self._outages.away(
            self, f"no replies are read from {self.topic}: {error}", self._clock.monotonic()
        )

    def _back(self) -> None:
        self._problem = None
        self._outages.back(self, self._clock.monotonic())


def reply_decoder(
    reply_type: Any, serializer: str | None, registered: SchemaSource | None = None
) -> RecordDecoder:
    """What makes a reply of its record: in the format of the channel's values, as *reply_type*.

    The schemas of *registered* are those of the requests: replies have the writer's own.
    FormatError: the format cannot yield that.
    """
    if registered is not None and serializer in REGISTERED_FORMATS:
        return _decoder(reply_type, serializer, replace(registered, file=None))
    # A function that writes values does not read them: the type decides, as without a serializer.
    name = None if serializer is None or ":" in serializer else serializer
    try:
        return _cached(reply_type, name)
    except TypeError:
        # An annotation without a hash.
        return _decoder(reply_type, name)


def _decoder(
    reply_type: Any, deserializer: str | None, registered: SchemaSource | None = None
) -> RecordDecoder:
    decode = decoder_for(reply_type, deserializer, registered)
    read = record_decoder_for(reply_type, deserializer, decode)
    refusal = refused_tombstone(reply_type) if decode is None else None
    if refusal is None:
        return read

    def as_it_is(record: Any) -> Any:
        value = read(record)
        if value is None:
            raise DecodeError(refusal)
        return value

    return as_it_is


# A model's validator is made once.
_cached = lru_cache(maxsize=256)(_decoder)


def _fail(answered: Future[RawRecord], error: BaseException) -> None:
    if not answered.done():
        answered.set_exception(error)


def _closed(name: str) -> ChannelClosedError:
    return ChannelClosedError(f"outgoing channel {name!r} has stopped")
