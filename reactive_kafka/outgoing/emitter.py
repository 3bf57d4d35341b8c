"""Emitters: applications send values to an outgoing channel, from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import Future
from collections.abc import Callable, Coroutine, Generator, Sequence
from datetime import datetime
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple, TypeVar, cast, overload

from reactive_kafka.config.kinds import SOME_TIME
from reactive_kafka.errors import (
    BufferFullError,
    ConfigError,
    SchemaAwayError,
    TransientBrokerError,
)
from reactive_kafka.formats import FormatError, RecordDecoder, SchemaMissing
from reactive_kafka.formats.sent_values import check_value, is_sent_whole
from reactive_kafka.outgoing.outgoing_channel import AroundSend, OutgoingChannel
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, Receipt
from reactive_kafka.outgoing.queue.record import QueuedRecord
from reactive_kafka.outgoing.requests import reply_decoder
from reactive_kafka.outgoing.schema_wait import once_known
from reactive_kafka.outgoing.target import Target
from reactive_kafka.outgoing.transactions.emitter_transaction import EmitterTransaction
from reactive_kafka.records import HeaderPairs, TopicPartition, record_of
from reactive_kafka.tasks import HomeLoop, at_home, has_stopped, has_stopped_error
from reactive_kafka.verdicts.ageing import not_ageing, not_ageing_in_thread
from reactive_kafka.verdicts.unawaited import awaited_or_reported

T = TypeVar("T")


class RecordMetadata(NamedTuple):
    """Where the broker has stored a record that was sent."""

    topic: str
    partition: int
    offset: int


class Sending(QueuedRecord):
    """A record that was handed over: await it for the broker's confirmation, or ignore it.

    :meth:`Emitter.send_nowait` returns it. ``result(timeout)`` waits in a thread without an event
    loop.

    Cancellation:
        Safe: the record is written all the same.
    """

    __slots__ = ("at", "error", "followers", "home", "is_over", "offset")

    is_over: bool
    # Why it is not written, once that is known.
    error: BaseException | None
    # Where it was written, once it is.
    at: TopicPartition
    offset: int
    home: HomeLoop
    # The callers that wait for the outcome; None if none does, as for most records.
    followers: list[concurrent.futures.Future[RecordMetadata]] | None

    # No __init__: see QueuedRecord.

    def __dir__(self) -> list[str]:
        return ["at", "done", "error", "is_over", "offset", "result", "__await__"]

    def written(self, at: TopicPartition, offset: int) -> None:
        """Note that the broker has confirmed the record. For the client, not for applications."""
        self.all_written((self,), at, offset)

    @classmethod
    def all_written(cls, records: Sequence[QueuedRecord], at: TopicPartition, offset: int) -> None:
        """Note that the broker has confirmed several records in a row, from *offset* on."""
        step = 0 if offset < 0 else 1
        followed = []
        for sending in cast("Sequence[Sending]", records):
            if not sending.is_over:
                sending.at = at
                sending.offset = offset
                # A caller that keeps it for its outcome need not keep the value in memory.
                sending.value = None
                sending.is_over = True
                if sending.followers is not None:
                    followed.append(sending)
            offset += step
        for sending in followed:
            sending.report()

    def fail(self, error: BaseException) -> None:
        """Note that the record was not sent. The first outcome wins."""
        if not self.is_over:
            # The value is kept: the client may be about to pack it.
            self.error = error
            self.is_over = True
            self.report()

    def report(self) -> None:
        """Complete the futures of all who wait for the outcome."""
        followers = self.followers
        self.followers = None
        for follower in followers or ():
            self._complete(follower)

    def _complete(self, follower: concurrent.futures.Future[RecordMetadata]) -> None:
        if self.error is not None:
            follower.set_exception(self.error)
        else:
            follower.set_result(RecordMetadata(self.at.topic, self.at.partition, self.offset))

    def _follow(self) -> concurrent.futures.Future[RecordMetadata]:
        follower: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
        follower.set_running_or_notify_cancel()

        def follow() -> None:
            if self.is_over:
                self._complete(follower)
            else:
                self.followers = [*(self.followers or ()), follower]

        def follow_no_more() -> None:
            if not self.is_over:
                # The application ended without reporting its outcome.
                self.fail(has_stopped_error())
            follow()

        if self.home.is_here:
            follow()
        else:
            # Do not wait for the loop here: while it is busy, the timeout of the caller runs.
            self.home.send(lambda _: follow(), follow_no_more)
        return follower

    def done(self) -> bool:
        """Whether the outcome is known: the broker has the record, or it has failed."""
        return self.is_over

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait in the calling thread, and return where the record was stored.

        Args:
            timeout: In seconds.

        Raises:
            BrokerError: It was not written.
            TimeoutError: The outcome is not known after *timeout*.
        """
        followed = self._follow()
        if self.home.is_here:
            return followed.result(timeout)
        with not_ageing_in_thread():
            return followed.result(timeout)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        followed = asyncio.wrap_future(self._follow())
        with not_ageing() if self.home.is_here else not_ageing_in_thread():
            return (yield from followed)


class Emitter:
    """Sends values to one outgoing channel, from handlers, web frameworks and any thread.

    Made before the application runs, it can be used while it does.
    """

    def __init__(
        self,
        name: str,
        running: Callable[[], tuple[Target, HomeLoop]],
        around: Callable[[], AroundSend | None] = lambda: None,
    ) -> None:
        self.name = name
        # Raises ChannelClosedError unless the application runs.
        self._running = running
        # Returns the send middleware of the application.
        self._current_middleware = around
        self._home: HomeLoop
        self.forget()

    def forget(self) -> None:
        """Drop what belongs to the last run of the application: it starts again."""
        # For send_nowait: what the last call in the application's own thread has found.
        self._channel: OutgoingChannel | None = None
        self._thread = 0
        # It stays the same for a whole run.
        self._around = self._current_middleware()

    @awaited_or_reported("emitter.send(...)")
    async def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: datetime | None = None,
        topic: str | None = None,
    ) -> RecordMetadata:
        """Send a value (or a :class:`Record`), and wait until the broker has it.

        While ``max_in_flight`` records are on their way, it waits for room. A write that fails is
        repeated within the channel's ``send_timeout``.

        Returns:
            Where it was stored.

        Raises:
            EncodeError: No serializer fits it.
            ConfigError: It is a Record that names another channel.
            RejectedRecordError: The broker refuses it, or Kafka takes none like it.
            TransientBrokerError: Not confirmed within ``send_timeout``. It may have been written.
            ChannelClosedError: The application does not run, or has stopped meanwhile.

        Cancellation:
            It is not written, unless that has begun.
        """
        record = record_of(value, key, headers, partition, timestamp, topic)
        channel, home = self._running()
        work = partial(_send, channel)
        return await at_home(home, self._sending(work, record))

    def send_nowait(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: datetime | None = None,
        topic: str | None = None,
    ) -> Sending:
        """Hand over a value (or a :class:`Record`), and return at once.

        The write is repeated until the broker has the record, or the application stops.

        Returns:
            An awaitable, which may be ignored: health and log of the channel report failed writes.

        Raises:
            BufferFullError: ``max_in_flight`` records are on their way.
            SchemaAwayError: The schema registry has not answered yet; nothing was sent.
            EncodeError: No serializer fits it.
            ConfigError: It is a Record that names another channel.
            RejectedRecordError: Kafka takes no such record.
            ChannelClosedError: The application does not run.
            RuntimeError: A send middleware awaits something.
        """
        quick = self._channel
        if (
            quick is not None
            and get_ident() == self._thread
            and not headers
            and partition is None
            and timestamp is None
            and topic is None
            and (type(value) is bytes or not is_sent_whole(type(value)))
        ):
            # Most records take this path. Each call of the general path costs half as much as all
            # of this one.
            sending = Sending()
            if type(value) is not bytes:
                check_value(value)
            sending.value = value if quick.is_raw and type(value) is bytes else quick.encode(value)
            sending.key = key if key is None or type(key) is bytes else quick.encode_key(key)
            sending.headers = ()
            sending.timestamp_ms = None
            sending.error = None
            sending.followers = None
            sending.is_over = False
            sending.home = self._home
            if quick.writer.accept(sending, quick.topic):
                return sending
        record = record_of(value, key, headers, partition, timestamp, topic)
        channel, home = self._running()
        if home.is_here:
            if isinstance(channel, OutgoingChannel) and channel.is_quick and self._around is None:
                self._channel = channel
                self._home = home
                self._thread = get_ident()
            return self._send_now(channel, home, record)
        return home.call(partial(self._send_now, channel, home, record), has_stopped)

    def _send_now(self, channel: Target, home: HomeLoop, record: Any) -> Sending:
        if self._around is None:
            return _send_now(channel, home, record)

        async def send_now(record: Any) -> Sending:
            return _send_now(channel, home, record)

        sending = self._around(self.name, record, send_now)
        try:
            sending.send(None)
        except StopIteration as end:
            return cast(Sending, end.value)
        sending.close()
        raise RuntimeError(
            f"app.emitter({self.name!r}).send_nowait(): "
            "a send_middleware waits for something; await send() instead"
        )

    def _sending(
        self, work: Callable[[Any], Coroutine[Any, Any, T]], record: Any
    ) -> Callable[[], Coroutine[Any, Any, T]]:
        """Return the call that sends the record by *work*, within the send middleware."""
        if self._around is None:
            return partial(work, record)
        return partial(self._around, self.name, record, work)

    def transaction(self) -> EmitterTransaction:
        """Send several records, all or none: ``async with emitter.transaction() as tx: ...``.

        Within the block, ``await tx.send(value)`` adds a record.

        Raises:
            ConfigError: On entering: the channel has no ``transactional_id``.
            ChannelClosedError: On entering: the application does not run.
        """
        return EmitterTransaction(self._running, at_home, lambda: self._around)

    @overload
    async def request(
        self,
        value: Any,
        *,
        reply_type: type[T],
        timeout: float | str = 5,
        key: Any = None,
        headers: HeaderPairs = (),
    ) -> T: ...
    @overload
    async def request(
        self,
        value: Any,
        *,
        timeout: float | str = 5,
        key: Any = None,
        headers: HeaderPairs = (),
        reply_type: Any = Any,
    ) -> Any: ...
    @awaited_or_reported("emitter.request(...)")
    async def request(
        self,
        value: Any,
        *,
        timeout: float | str = 5,
        key: Any = None,
        headers: HeaderPairs = (),
        reply_type: Any = Any,
    ) -> Any:
        """Send a value (or a :class:`Record`) as a request, and wait for the reply to it.

        Args:
            timeout: Seconds, or a duration as ``"500ms"``. It covers the wait for room, the write
                and the reply.
            reply_type: The type of the reply, like a handler's annotation. Its format is the
                channel's ``value_serializer``.

        Returns:
            The value of the first reply.

        Raises:
            ReplyTimeoutError: No reply came in time. The request may have been handled; its reply
                is dropped.
            DecodeError: The reply cannot be read as *reply_type*.
            EncodeError, RejectedRecordError, ChannelClosedError: As :meth:`send`.
            ConfigError: An argument is wrong.

        Cancellation:
            It is not written, unless that has begun.
        """
        record = record_of(value, key, headers, None, None, None)
        channel, home = self._running()
        if not isinstance(channel, OutgoingChannel):
            raise ConfigError(
                f"app.emitter({self.name!r}).request(): "
                f"[memory.{self.name}] has no topic for replies"
            )
        try:
            timeout_s = SOME_TIME.parse(timeout)
            decode = reply_decoder(
                reply_type, channel.settings.value_serializer, channel.registered
            )
        except (ValueError, FormatError) as error:
            asked = f"timeout={timeout!r}, reply_type={reply_type!r}"
            raise ConfigError(f"app.emitter({self.name!r}).request({asked}): {error}") from None

        work = partial(_ask, channel, decode, timeout_s)
        return await at_home(home, self._sending(work, record))

    async def flush(self) -> None:
        """Wait until the broker has, or has refused, every record that was accepted before.

        That includes records of other senders of the channel, but not those of a transaction that
        is open: the end of its block is what waits for these.

        Raises:
            ChannelClosedError: The application does not run, or has stopped meanwhile.
        """
        channel, home = self._running()

        async def flushed() -> None:
            with not_ageing():
                await channel.writer.flush()

        await at_home(home, flushed)


async def _send(channel: Target, record: Any) -> RecordMetadata:
    check_value(record)
    timeout_s = channel.settings.send_timeout_s
    try:
        outgoing = channel.prepare(record)
    except SchemaMissing as missing:
        outgoing = await once_known(partial(channel.prepare, record), missing, timeout_s)
    done: Future[RecordMetadata] = asyncio.get_running_loop().create_future()

    def then(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(_metadata(receipt))
        else:
            done.set_exception(error)

    receipt = CallbackReceipt(then)
    try:
        with not_ageing():
            async with asyncio.timeout(timeout_s):
                await channel.writer.put(outgoing, receipt)
                receipt.seal()
                return await done
    except TimeoutError:
        why = channel.writer.facts().broker_error
        because = f": {why}" if why else ""
        raise TransientBrokerError(
            f"{outgoing.topic}: not confirmed within {timeout_s:g} s{because}"
        ) from None
    finally:
        receipt.void()


async def _ask(
    channel: OutgoingChannel, decode: RecordDecoder, timeout_s: float, record: Any
) -> Any:
    check_value(record)
    until = asyncio.get_running_loop().time() + timeout_s
    try:
        outgoing = channel.prepare(record)
    except SchemaMissing as missing:
        outgoing = await once_known(partial(channel.prepare, record), missing, timeout_s)
    left_s = timeout_s
    if channel.registered is not None:
        # The wait for a schema has taken its part.
        left_s = max(0.0, until - asyncio.get_running_loop().time())
    reply = await channel.requests.ask(outgoing, left_s)
    try:
        return decode(reply)
    except SchemaMissing as missing:
        left_s = until - asyncio.get_running_loop().time()
        return await once_known(partial(decode, reply), missing, max(0.0, left_s))


def _send_now(channel: Target, home: HomeLoop, record: Any) -> Sending:
    check_value(record)
    if (problem := channel.why_full) is not None:
        raise BufferFullError(problem)
    try:
        outgoing = channel.prepare(record)
    except SchemaMissing as missing:
        missing.ask_for_it()
        raise SchemaAwayError(missing.why()) from None
    sending = Sending()
    sending.error = None
    sending.followers = None
    sending.is_over = False
    sending.home = home
    channel.put_now(outgoing, sending)
    return sending


def _metadata(receipt: Receipt) -> RecordMetadata:
    # Called once the receipt has reported the write.
    assert receipt.at is not None  # noqa: S101
    return RecordMetadata(receipt.at.topic, receipt.at.partition, receipt.offset)
