"""Requests of one outgoing channel, and the reader of the topic where their replies arrive."""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED, Future
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from anyio import CancelScope

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer, Poll, start_without_group
from reactive_kafka.clock import Clock
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.settings import OutgoingSettings
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
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.outgoing.reply_headers import correlation_id_of, request_headers
from reactive_kafka.outgoing.transactions.transactional_writer import TransactionalWriter
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.subscription import Partitions
from reactive_kafka.tasks import Flag, Spawn, is_set_within
from reactive_kafka.verdicts.ageing import not_ageing

logger = logging.getLogger("reactive_kafka")

BACKOFF = Backoff(0.25, 5.0)
POLL_S = 1.0
POLL_RECORDS = 500
"""Most records of a partition in one poll."""
CLOSED_S = 10.0
"""A reader that has not ended by then is left behind."""
LOOK_EVERY_S = 2.0
"""How often to look for new partitions of the reply topic, while requests wait."""
LOOK_S = 1.0
"""How often a request that waits looks whether its brokers are away."""
MOST_LATE = 1_000
"""So many requests that timed out are remembered: their late replies are logged, others are not."""


class Requests:
    """Sends the requests of one channel, and matches the replies to them.

    At most ``max_in_flight`` requests wait at a time. The reader of the reply topic starts with the
    first request and is kept. It belongs to no group and reads all partitions, from their ends at
    that time. Processes may share the topic: each takes the replies to its own requests.
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
        # Counts the partitions of a topic; the broker may create the topic for that.
        self._count_partitions = partitions
        self._clock = clock
        self._outages = OutageReports(settings.name, observer)
        self._spawn = spawn
        self._places = asyncio.Semaphore(settings.max_in_flight)
        self._pending: dict[bytes, Future[RawRecord]] = {}
        # Ids of requests that timed out, oldest first.
        self._late: OrderedDict[bytes, None] = OrderedDict()
        # Set when the reader knows where it starts, or the channel has stopped.
        self._ready = Flag()
        # The scope of the reader; None: it has not started.
        self._scope: CancelScope | None = None
        self._ended = Flag()
        self._is_closed = False
        # Why no replies can be read; None: they are.
        self._problem: str | None = None

    async def ask(self, outgoing: OutgoingRecord, timeout_s: float) -> RawRecord:
        """Send a request, and return its reply.

        Raises:
            ReplyTimeoutError: There is none after *timeout_s*.
            RejectedRecordError: The request can never be written.
            ChannelClosedError: The channel stops, or has.

        Cancellation:
            The request is not written, unless that has begun. Its reply is dropped.
        """
        correlation_id = uuid4().hex.encode()
        headers = request_headers(outgoing.record.headers, self.topic, correlation_id)
        outgoing = outgoing._replace(record=outgoing.record._replace(headers=headers))
        answered: Future[RawRecord] = asyncio.get_running_loop().create_future()
        written: Future[None] = asyncio.get_running_loop().create_future()

        def then(error: BaseException | None) -> None:
            if error is not None:
                _fail(answered, error)
            elif not written.done():
                # The reply is still to come.
                written.set_result(None)

        receipt = CallbackReceipt(then)
        try:
            async with asyncio.timeout(timeout_s), self._place():
                self._begin()
                self._pending[correlation_id] = answered
                with not_ageing():
                    await self._ready.wait()
                    if not answered.done():
                        await self._writer.put(outgoing, receipt)
                        receipt.seal()
                        either: tuple[Future[Any], ...] = (answered, written)
                        await asyncio.wait(either, return_when=FIRST_COMPLETED)
                return await self._replied(answered)
        except TimeoutError:
            if not answered.done() or answered.cancelled():
                why = self._why_away()
                because = f": {why}" if why else ""
                late = ReplyTimeoutError(
                    f"{outgoing.topic}: no reply in {self.topic} within {timeout_s:g} s{because}"
                )
                late.by_outage = why is not None
                raise late from None
            # The reply came just when the time was over.
            return answered.result()
        finally:
            receipt.void()
            self._forget(correlation_id, answered)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold a place among the requests. The caller's records do not age while it waits."""
        with not_ageing():
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    async def _replied(self, answered: Future[RawRecord]) -> RawRecord:
        """Wait for a reply. The records of the caller age only while its brokers answer."""
        while not answered.done():
            with nullcontext() if self._why_away() is None else not_ageing():
                await asyncio.wait([answered], timeout=LOOK_S)
        return answered.result()

    def _why_away(self) -> str | None:
        """Return why no request can be written, or no reply be read; None: it can."""
        return self._problem or self._writer.facts().broker_error

    def _forget(self, correlation_id: bytes, answered: Future[RawRecord]) -> None:
        """Stop waiting for the reply to a request."""
        if self._pending.pop(correlation_id, None) is not None:
            self._late[correlation_id] = None
            if len(self._late) > MOST_LATE:
                self._late.popitem(last=False)
        if answered.done() and not answered.cancelled():
            # If the channel stopped while the write raised, this error is not looked at, and
            # asyncio would log that.
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
            # The stop of its client has a deadline, too.
            await is_set_within(self._ended, CLOSED_S)

    async def _run(self, scope: CancelScope) -> None:
        """Read replies, with a new client whenever one has failed."""
        # They are kept from one client to the next, so that no reply is missed.
        positions: dict[TopicPartition, int] = {}
        waits = Waits(BACKOFF)
        try:
            with scope:
                partitions = 0
                while True:
                    try:
                        partitions = partitions or await self._count_partitions(self.topic)
                        partitions = await self._read(partitions, positions, waits)
                    except BrokerError as error:
                        self._away(error)
                        await asyncio.sleep(waits.next_s())
        finally:
            self._ended.set()

    async def _read(
        self, partitions: int, positions: dict[TopicPartition, int], waits: Waits
    ) -> int:
        """Read until the topic has another number of partitions, and return that."""
        reading = [TopicPartition(self.topic, number) for number in range(partitions)]
        properties = {
            name: value
            for name, value in self._settings.client.items()
            if "consumer" in SIDES.get(name, ())
        }
        # A reply in a transaction that was aborted is none: its exactly-once handler is called
        # again.
        properties["isolation_level"] = "read_committed"
        name = f"{self._settings.name}-replies"
        consumer = self._connector.consumer(
            name=name,
            subscription=Partitions(tuple(reading)),
            group_id=None,
            properties=properties,
        )
        try:
            await start_without_group(consumer)
            new = [partition for partition in reading if partition not in positions]
            if self._ready.is_set():
                # Partitions that were added after the first request hold no older replies.
                positions.update(await consumer.beginning_offsets(new))
            else:
                positions.update(await consumer.end_offsets(new))
            consumer.start_at({partition: positions[partition] for partition in reading})
            self._ready.set()
            began = looked = self._clock.monotonic()
            while True:
                poll = await consumer.poll(dict.fromkeys(reading, POLL_RECORDS), POLL_S)
                self._back()
                if self._clock.monotonic() - began >= BACKOFF.last_s:
                    # A connection alone is no progress: a client may fail at each first poll.
                    waits.progressed()
                self._take(poll, positions)
                for partition, error in poll.errors.items():
                    await self._skip(consumer, partition, error, positions)
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

    async def _skip(
        self,
        consumer: Consumer,
        partition: TopicPartition,
        error: BrokerError,
        positions: dict[TopicPartition, int],
    ) -> None:
        """Continue after records of a partition that cannot be read.

        Raises:
            BrokerError: Another client may be able to read them.
        """
        if isinstance(error, TransientBrokerError | FatalBrokerError):
            raise error
        logger.warning("%s: replies may be lost: %s", self._settings.name, error)
        if isinstance(error, OffsetOutOfRangeError):
            positions.update(await consumer.beginning_offsets([partition]))
        else:
            positions.update(await consumer.end_offsets([partition]))
        consumer.start_at({partition: positions[partition]})

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
    """Return the decoder of replies: in the format of the channel's values, to *reply_type*.

    Args:
        registered: The schemas of the requests. Replies are read with the schema of their writer.

    Raises:
        FormatError: The format cannot yield that type.
    """
    if registered is not None and serializer in REGISTERED_FORMATS:
        return _decoder(reply_type, serializer, replace(registered, file=None))
    # A serializer function cannot read. So the type decides, as without a serializer.
    name = None if serializer is None or ":" in serializer else serializer
    try:
        return _cached(reply_type, name)
    except TypeError:
        # The annotation is not hashable.
        return _decoder(reply_type, name)


def _decoder(
    reply_type: Any, deserializer: str | None, registered: SchemaSource | None = None
) -> RecordDecoder:
    decode = decoder_for(reply_type, deserializer, registered)
    read = record_decoder_for(reply_type, deserializer, decode)
    refusal = refused_tombstone(reply_type) if decode is None else None
    if refusal is None:
        return read

    def refusing_none(record: Any) -> Any:
        value = read(record)
        if value is None:
            raise DecodeError(refusal)
        return value

    return refusing_none


# So that the validator of a model is built once.
_cached = lru_cache(maxsize=256)(_decoder)


def _fail(answered: Future[RawRecord], error: BaseException) -> None:
    if not answered.done():
        answered.set_exception(error)


def _closed(name: str) -> ChannelClosedError:
    return ChannelClosedError(f"outgoing channel {name!r} has stopped")
