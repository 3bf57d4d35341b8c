"""What applications send by themselves: values for an outgoing channel, from any thread."""

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
    ChannelClosedError,
    ConfigError,
    SchemaAwayError,
    TransientBrokerError,
)
from reactive_kafka.formats import FormatError, RecordDecoder, SchemaMissing
from reactive_kafka.outgoing.channel import AroundSend, OutgoingChannel
from reactive_kafka.outgoing.emitter_transaction import EmitterTransaction
from reactive_kafka.outgoing.memory import Target
from reactive_kafka.outgoing.outbox import Gathering, Receipt
from reactive_kafka.outgoing.requests import reply_decoder
from reactive_kafka.outgoing.results import check_value, is_sent_whole
from reactive_kafka.outgoing.schemas import once_known
from reactive_kafka.outgoing.transactional import TransactionalWriter
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.records import HeaderPairs, TopicPartition, record_of
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.unawaited import awaited_or_told

T = TypeVar("T")


class RecordMetadata(NamedTuple):
    """Where the broker has stored a record that was sent."""

    topic: str
    partition: int
    offset: int


class Sending(Waiting):
    """What :meth:`Emitter.send_nowait` returns: await it for the broker's confirmation, or ignore
    it.

    ``result(timeout)`` waits for it in a thread without an event loop.
    Cancellation: Safe. The record is written all the same.
    """

    __slots__ = ("at", "error", "followers", "home", "is_over", "offset")

    is_over: bool
    # Why it is not written, once that is known.
    error: BaseException | None
    # Where it stands, once it is written.
    at: TopicPartition
    offset: int
    home: HomeLoop
    # Few ask.
    followers: list[concurrent.futures.Future[RecordMetadata]] | None

    # No __init__: see Waiting.

    def __dir__(self) -> list[str]:
        return ["at", "done", "error", "is_over", "offset", "result", "__await__"]

    def written(self, at: TopicPartition, offset: int) -> None:
        self.all_written((self,), at, offset)

    @classmethod
    def all_written(cls, waiting: Sequence[Waiting], at: TopicPartition, offset: int) -> None:
        step = 0 if offset < 0 else 1
        followed = []
        for one in cast("Sequence[Sending]", waiting):
            if not one.is_over:
                one.at = at
                one.offset = offset
                # Whoever keeps it for its result keeps no record.
                one.value = None
                one.is_over = True
                if one.followers is not None:
                    followed.append(one)
            offset += step
        for one in followed:
            one.tell()

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            # Its value stays: the client may be about to pack it.
            self.error = error
            self.is_over = True
            self.tell()

    def tell(self) -> None:
        """The broker has it, or it has failed."""
        followers = self.followers
        self.followers = None
        for follower in followers or ():
            self._tell(follower)

    def _tell(self, follower: concurrent.futures.Future[RecordMetadata]) -> None:
        if self.error is not None:
            follower.set_exception(self.error)
        else:
            follower.set_result(RecordMetadata(self.at.topic, self.at.partition, self.offset))

    def _follow(self) -> concurrent.futures.Future[RecordMetadata]:
        follower: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
        follower.set_running_or_notify_cancel()

        def follow() -> None:
            if self.is_over:
                self._tell(follower)
            else:
                self.followers = [*(self.followers or ()), follower]

        def follow_no_more() -> None:
            if not self.is_over:
                # Without a word.
                self.fail(ChannelClosedError("the application has stopped"))
            follow()

        if self.home.is_here:
            follow()
        else:
            # Not waited for: while the loop is busy a caller's time runs.
            self.home.send(lambda _: follow(), follow_no_more)
        return follower

    def done(self) -> bool:
        """Whether the broker has it, or it has failed."""
        return self.is_over

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where it was stored, waited for up to *timeout* seconds in a thread of the caller's.

        Raises:
            BrokerError: It was not written.
            TimeoutError: Nobody knows by then.
        """
        return self._follow().result(timeout)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        followed = asyncio.wrap_future(self._follow())
        if not self.home.is_here:
            return (yield from followed)
        with not_ageing():
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
        # Raises ChannelClosedError where the application does not run.
        self._running = running
        # What the application has around its sends.
        self._around_now = around
        self._home: HomeLoop
        self.forget()

    def forget(self) -> None:
        """The application begins anew: what was found in its last run is another's."""
        # Found by the last call of the application's own thread.
        self._channel: OutgoingChannel | None = None
        self._thread = 0
        # The same for a whole run.
        self._around = self._around_now()

    @awaited_or_told("emitter.send(...)")
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

        Waits for room where ``max_in_flight`` records are on their way. What fails is tried again
        within the channel's ``send_timeout``.

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
        return await _at_home(home, self._sending(work, record))

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
        """Hand a value (or a :class:`Record`) over; it is tried until the broker has it, or the
        application stops.

        Returns:
            An awaitable that may be ignored: what cannot be written is told by the channel's health
                and log.

        Raises:
            BufferFullError: ``max_in_flight`` records are on their way.
            SchemaAwayError: Its schema registry has not told yet how to write it; nothing was sent.
            EncodeError: No serializer fits it.
            ConfigError: It is a Record that names another channel.
            RejectedRecordError: Kafka takes no such record.
            ChannelClosedError: The application does not run.
            RuntimeError: A send middleware waits for something.
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
            # The way of most records, without the calls of the general one, each of which costs as
            # much as half of it.
            sending = Sending()
            if type(value) is not bytes:
                check_value(value)
            sending.value = value if quick.is_raw and type(value) is bytes else quick.encode(value)
            sending.key = key if key is None or type(key) is bytes else quick.encode_key(key)
            sending.headers = ()
            sending.timestamp_ms = sending.error = sending.followers = None
            sending.is_over = False
            sending.home = self._home
            if quick.writer.take(sending, quick.topic):
                return sending
        record = record_of(value, key, headers, partition, timestamp, topic)
        channel, home = self._running()
        if home.is_here:
            if isinstance(channel, OutgoingChannel) and channel.is_quick and self._around is None:
                self._channel = channel
                self._home = home
                self._thread = get_ident()
            return self._send_now(channel, home, record)
        return home.call(partial(self._send_now, channel, home, record), _stopped)

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
            f"app.emitter({self.name!r}).send_nowait(): a send_middleware waits for something; await send() instead"
        )

    def _sending(
        self, work: Callable[[Any], Coroutine[Any, Any, T]], record: Any
    ) -> Callable[[], Coroutine[Any, Any, T]]:
        """How *work* sends the record, with what is around that."""
        return (
            partial(work, record)
            if self._around is None
            else partial(self._around, self.name, record, work)
        )

    def transaction(self) -> EmitterTransaction:
        """``async with emitter.transaction() as tx: await tx.send(value)``: all of it is written,
        or nothing.

        The channel has a ``transactional_id``; else entering raises ConfigError, as where the
        application does not run ChannelClosedError.
        """
        return EmitterTransaction(self._running, _at_home, lambda: self._around)

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
    @awaited_or_told("emitter.request(...)")
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
            timeout: Seconds, or a duration as ``"500ms"``, for all of it: for room, for the write
                and for the reply.
            reply_type: What the reply is read as, like a handler's annotation; in the channel's
                ``value_serializer``.

        Returns:
            The value of the first reply.

        Raises:
            ReplyTimeoutError: None came in time. The request may have been handled, and its reply
                is dropped.
            DecodeError: The reply is no *reply_type*.
            EncodeError, RejectedRecordError, ChannelClosedError: As :meth:`send`.
            ConfigError: An argument is wrong.

        Cancellation:
            It is not written, unless that has begun.
        """
        record = record_of(value, key, headers, None, None, None)
        channel, home = self._running()
        if not isinstance(channel, OutgoingChannel):
            raise ConfigError(
                f"app.emitter({self.name!r}).request(): [memory.{self.name}] has no topic for replies"
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
        return await _at_home(home, self._sending(work, record))

    async def flush(self) -> None:
        """Wait until the broker has, or has refused, all that was accepted before, from whoever
        sent it.

        Raises:
            ChannelClosedError: The application does not run, or has stopped meanwhile.
        """
        channel, home = self._running()

        async def flushed() -> None:
            with not_ageing():
                await channel.writer.flush()

        await _at_home(home, flushed)


async def _at_home(home: HomeLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await something on the application's loop, whichever the caller's is."""
    if home.is_here:
        return await work()

    async def run() -> tuple[T | None, BaseException | None]:
        try:
            return await work(), None
        except (SystemExit, KeyboardInterrupt) as ending:
            # It is for whoever asked: raised by a task it would end the application's loop.
            return None, ending

    running = run()
    try:
        answer = asyncio.run_coroutine_threadsafe(running, home.loop)
    except RuntimeError as closed:
        running.close()
        raise ChannelClosedError("the application has stopped") from closed
    result, ending = await asyncio.wrap_future(answer)
    if ending is not None:
        raise ending
    return cast(T, result)


async def _send(channel: Target, record: Any) -> RecordMetadata:
    check_value(record)
    timeout_s = channel.settings.send_timeout_s
    try:
        outbound = channel.prepare(record)
    except SchemaMissing as missing:
        outbound = await once_known(partial(channel.prepare, record), missing, timeout_s)
    done: Future[RecordMetadata] = asyncio.get_running_loop().create_future()

    def then(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(_metadata(receipt))
        else:
            done.set_exception(error)

    receipt = Gathering(then)
    try:
        with not_ageing():
            async with asyncio.timeout(timeout_s):
                await channel.writer.put(outbound, receipt)
                receipt.seal()
                return await done
    except TimeoutError:
        why = channel.writer.facts().broker_error
        because = f": {why}" if why else ""
        raise TransientBrokerError(
            f"{outbound.topic}: not confirmed within {timeout_s:g} s{because}"
        ) from None
    finally:
        receipt.void()


async def _ask(
    channel: OutgoingChannel, decode: RecordDecoder, timeout_s: float, record: Any
) -> Any:
    check_value(record)
    until = asyncio.get_running_loop().time() + timeout_s
    try:
        outbound = channel.prepare(record)
    except SchemaMissing as missing:
        outbound = await once_known(partial(channel.prepare, record), missing, timeout_s)
    left_s = until - asyncio.get_running_loop().time()
    reply = await channel.requests.ask(
        outbound, timeout_s if channel.registered is None else max(0.0, left_s)
    )
    try:
        return decode(reply)
    except SchemaMissing as missing:
        left_s = until - asyncio.get_running_loop().time()
        return await once_known(partial(decode, reply), missing, max(0.0, left_s))


def _send_now(channel: Target, home: HomeLoop, record: Any) -> Sending:
    check_value(record)
    writer = channel.writer
    # That one refuses by itself.
    if not (writer.has_room or isinstance(writer, TransactionalWriter)):
        raise BufferFullError(writer.why_full)
    try:
        outbound = channel.prepare(record)
        sending = Sending()
    except SchemaMissing as missing:
        missing.ask_for_it()
        raise SchemaAwayError(missing.why()) from None
    sending.error = sending.followers = None
    sending.is_over = False
    sending.home = home
    if isinstance(channel, OutgoingChannel):
        sending.value, sending.key, sending.headers, sending.timestamp_ms = outbound.record
        channel.writer.put_now(sending, outbound.topic, outbound.partition)
    else:
        channel.put_now(outbound, sending)
    return sending


def _stopped() -> Sending:
    raise ChannelClosedError("the application has stopped")


def _metadata(receipt: Receipt) -> RecordMetadata:
    # It is asked for when it was written.
    assert receipt.at is not None  # noqa: S101
    return RecordMetadata(receipt.at.topic, receipt.at.partition, receipt.offset)
