"""Carries out what failure strategies decide: dead letters and delayed retries, written until the
broker has them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyio import CancelScope

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, RejectedRecordError
from reactive_kafka.failure.decision import (
    Decision,
    FailedRecord,
    FailureStrategy,
    Skip,
    Stop,
    Write,
)
from reactive_kafka.failure.headers import DISPENSABLE
from reactive_kafka.failure.matching import nearest
from reactive_kafka.failure.strategies import DEAD_LETTER_QUEUE, DELAYED_RETRY, strategies_of
from reactive_kafka.observe.events import Event, Observer, SendFailed
from reactive_kafka.outgoing.letter_topics import TargetTopics
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.records import RecordBytes
from reactive_kafka.tasks import Spawn
from reactive_kafka.wire import record_problem

Settle = Callable[[OutgoingRecord], Awaitable[None]]
"""Writes a record in one transaction with the position behind that which it is made of. Raises
RejectedRecordError.
"""

# The broker says what is too large: what could be read must be writable, whatever a producer's
# default is.
MAX_RECORD_BYTES = 2**31 - 1
MOST_LETTERS = 1024
"""Most letters that wait for the broker at a time."""
# After so long a record that the broker refuses in every form is tried again.
REFUSED_S = 10.0
# So long a write may take before readiness speaks of it, and the topic is looked at again.
LATE_S = 2.0


@dataclass(slots=True, eq=False)
class _Trouble:
    """Something is not written, since a moment of the monotonic clock; without a reason, nobody has
    said why.
    """

    topic: str
    since: float
    reason: str | None = None


class Failures:
    """The failure strategies of one channel, and the writing that they ask for; ConfigError: one
    cannot be made.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        connector: Connector,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._strategies = strategies_of(settings)
        self._scopes: set[CancelScope] = set()
        self._is_stopped = False
        # By topic: nothing can be written to it.
        self._troubles: dict[str, _Trouble] = {}
        # One for each record, in their order; with a reason once it is refused.
        self._writing: list[_Trouble] = []
        self._topics = TargetTopics(settings, connector)
        self._writer = self._make_writer(connector)
        # A transaction is one cluster's: letters that go to another one are written first, and
        # stand there at least once.
        there = (
            settings.client
            if settings.dead_letter_queue is None
            else settings.dead_letter_queue.client
        )
        is_one_cluster = there.get("bootstrap_servers") == settings.client.get("bootstrap_servers")
        self._is_one_cluster = is_one_cluster

    def start(self) -> None:
        """Connect, and look after the topics, in the background."""
        if self._writer is not None:
            # Else the channel's own client asks.
            self._writer.start(watches=not self._is_one_cluster)
            self._in_background(self._topics.run, f"topics of failures of {self.name}")

    async def prepared(self) -> None:
        """Wait until the topics were looked at, or the channel stops.

        Who reads retry topics waits for it: a client that subscribes to a missing topic makes the
        broker create it, with as many partitions as it likes, and hears of it only when it
        refreshes what it knows of the cluster.
        """
        await self._until_stopped(self._topics.looked)

    async def stop(self) -> None:
        """End the writing: who waits in :meth:`write` gets ChannelClosedError, the record may be
        written all the same.

        Drain before: a letter that is on its way is waited for only as long as the producer's flush
        takes.
        """
        self._is_stopped = True
        for scope in list(self._scopes):
            scope.cancel()
        if self._writer is not None:
            await self._writer.stop()

    def strategy_of(self, reason: BaseException) -> str:
        return nearest(reason, self._settings.failure_routes, self._settings.failure_strategy)

    def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """What becomes of a record; awaitable only where a strategy of the user's is."""
        name = self.strategy_of(failed.reason)
        return _decided(name, self._strategies[name], failed)

    def later(self, failed: FailedRecord, topic: str) -> Decision:
        """A delayed retry that was asked for, of a channel that has some."""
        strategy: Any = self._strategies[DELAYED_RETRY]
        decision: Decision = strategy.later(failed, topic)
        return decision

    def dead_letter(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """As :meth:`decide`, whatever strategy the reason would meet; KeyError: there is no
        dead-letter queue.
        """
        return _decided(DEAD_LETTER_QUEUE, self._strategies[DEAD_LETTER_QUEUE], failed)

    async def write(self, write: Write, settle: Settle | None = None) -> bool:
        """Write a record; returns when the broker has it, however long that takes; True: *settle*
        has written it.

        A broker that is away and a topic that is missing are waited for. A record that the broker
        refuses is tried without the longer ones of our headers, then without its timestamp, and
        then every few seconds. ``not_ready`` says what is waited for. ChannelClosedError: the
        channel stopped meanwhile.
        Cancellation: The record may be written all the same.
        """
        settle = settle if self._is_one_cluster else None
        here = _Trouble(write.topic, self._clock.monotonic())
        self._writing.append(here)
        late = asyncio.get_running_loop().call_later(LATE_S, self._topics.look_again, write.topic)
        try:
            if not await self._until_stopped(lambda: self._write(write, here, settle)):
                raise ChannelClosedError(
                    f"channel {self.name!r} stopped before a record was written to {write.topic}"
                )
        finally:
            late.cancel()
            self._writing.remove(here)
            if all(one.topic != write.topic for one in self._writing):
                # Nobody waits for it any more: its records are another's now.
                self._troubles.pop(write.topic, None)
        return settle is not None

    async def _write(self, write: Write, here: _Trouble, settle: Settle | None) -> None:
        writer = self._writer
        if writer is None:
            raise ChannelClosedError(f"channel {self.name!r} has no strategy that writes")
        refused = await self._refused_in_every_form(writer, write, settle)
        if refused is not None:
            here.since = self._clock.monotonic()
        # It waits here until somebody changes the topic's limits. Then it may fit with all of its
        # headers again.
        while refused is not None:
            here.reason = str(refused)
            await asyncio.sleep(REFUSED_S)
            refused = await self._refused_in_every_form(writer, write, settle)
        self._troubles.pop(write.topic, None)

    async def _refused_in_every_form(
        self, writer: Writer, write: Write, settle: Settle | None
    ) -> RejectedRecordError | None:
        """Write a record with as many of our headers as the broker takes; what it has against the
        shortest form.
        """
        refused = None
        for form in _forms(write):
            refused = await self._refusal(writer, form, settle)
            if refused is None:
                break
        return refused

    async def _refusal(
        self, writer: Writer, write: Write, settle: Settle | None
    ) -> RejectedRecordError | None:
        """What the broker has against this record; None: it has it."""
        outgoing = _outbound(write, await self._topics.partitions(write.topic))
        try:
            await (writer.write if settle is None else settle)(outgoing)
        except RejectedRecordError as error:
            # The topic works: it is this record that does not fit.
            self._troubles.pop(write.topic, None)
            return error
        return None

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why the channel's failures are not written as they should be, for people; empty when they
        are.
        """
        now = self._clock.monotonic()
        lines = list(self._topics.problems.values())
        if self._writer is not None and self._writer.watch.silence is not None:
            lines.append(f"the brokers of its dead letters are away: {self._writer.watch.silence}")
        refused = [one for one in self._writing if one.reason is not None]
        for one in self._troubles.values():
            lines.append(
                f"nothing can be written to {one.topic!r} for {now - one.since:.0f} s: {one.reason}"
            )
        for one in refused:
            lines.append(
                f"a record is refused by {one.topic!r} for {now - one.since:.0f} s: {one.reason}"
            )
        known = {*self._troubles, *(one.topic for one in refused)}
        # The client itself waits for long before it gives up: till then nobody says why.
        for one in self._writing:
            if one.topic not in known and now - one.since >= LATE_S:
                known.add(one.topic)
                lines.append(
                    f"a record is not confirmed by {one.topic!r} for {now - one.since:.0f} s"
                )
        return tuple(lines)

    def on(self, event: Event) -> None:
        """Hear what the producers tell, and pass it on."""
        if isinstance(event, SendFailed):
            known = self._troubles.get(event.topic)
            since = self._clock.monotonic() if known is None else known.since
            self._troubles[event.topic] = _Trouble(event.topic, since, event.reason)
            self._topics.look_again(event.topic)
        self._observer.on(event)

    def _make_writer(self, connector: Connector) -> Writer | None:
        """What writes dead letters and retries, None where no strategy ever does."""
        settings = self._settings
        client: Mapping[str, Any]
        if settings.dead_letter_queue is not None:
            client = settings.dead_letter_queue.client
        elif settings.delayed_retry is not None or any(":" in name for name in self._strategies):
            client = {
                it: value
                for it, value in settings.client.items()
                if "producer" in SIDES.get(it, ("producer",))
            }
        else:
            return None
        client = {
            "client_id": f"reactive-kafka-{self.name}-failures",
            "max_request_size": MAX_RECORD_BYTES,
            **client,
        }
        producer = connector.producer(name=self.name, properties=client)
        return Writer(
            self.name, producer, self._clock, self, self._spawn, max_in_flight=MOST_LETTERS
        )

    def _in_background(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            await self._until_stopped(task)

        self._spawn(run, name)

    async def _until_stopped(self, task: Callable[[], Awaitable[None]]) -> bool:
        """Whether *task* came to its end before ``stop``."""
        with CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if not self._is_stopped:
                    await task()
                    return True
            finally:
                self._scopes.discard(scope)
        return False


def _decided(
    name: str, strategy: FailureStrategy, failed: FailedRecord
) -> Decision | Awaitable[Decision]:
    """What the strategy called *name* decides. It may be the user's, and its bug must not pass for
    a verdict.
    """
    try:
        decision = strategy.decide(failed)
        return (
            _awaited(name, decision, failed)
            if inspect.isawaitable(decision)
            else _checked(name, decision)
        )
    except BaseException as error:
        # Also SystemExit, and a CancelledError: nothing is awaited here, so it is not ours.
        return _bug(error, failed)


async def _awaited(name: str, decision: Awaitable[Decision], failed: FailedRecord) -> Decision:
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return _checked(name, await decision)
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() > before:
            # It is we who are cancelled: the partition has gone, or the application ends.
            raise
        # Of something that the strategy has waited for.
        return _bug(error, failed)
    except BaseException as error:
        return _bug(error, failed)


def _checked(name: str, decision: object) -> Decision:
    """The decision, if it can be carried out.

    TypeError: it is none. ValueError: what it wants written can never be; the text names strategy,
    field and value.
    """
    if not isinstance(decision, Stop | Skip | Write):
        raise TypeError(
            f"the failure strategy {name!r} decides Stop, Skip or Write, not {type(decision).__name__}"
        )
    if isinstance(decision, Stop) and not isinstance(decision.error, BaseException | None):
        raise TypeError(
            f"the failure strategy {name!r} decided Stop({decision.error!r}), which is no exception"
        )
    if isinstance(decision, Write):
        problem = record_problem(
            decision.topic,
            decision.value,
            decision.key,
            decision.headers,
            decision.partition,
            decision.timestamp_ms,
        )
        if decision.kind not in ("dead-letter", "retry"):
            problem = f"kind = {decision.kind!r}: expected 'dead-letter' or 'retry'"
        if problem is not None:
            raise ValueError(
                f"the failure strategy {name!r} decided a Write that can never be written: {problem}"
            )
    return decision


def _bug(error: BaseException, failed: FailedRecord) -> Stop:
    if error.__context__ is None and error is not failed.reason:
        error.__context__ = failed.reason
    return Stop(error)


def _outbound(write: Write, partitions: int | None) -> OutgoingRecord:
    partition = write.partition
    if write.kind == "retry" and partition is not None:
        # Not known: by the key.
        partition = partition % partitions if partitions else None
    return OutgoingRecord(
        write.topic,
        RecordBytes(write.value, write.key, write.headers, write.timestamp_ms),
        partition,
    )


def _forms(write: Write) -> Iterator[Write]:
    """As decided; without the texts among our headers, where it is too large; with no timestamp of
    long ago or later.

    What failed, and where the record stood, always stays.
    """
    trimmed = replace(
        write, headers=tuple(header for header in write.headers if header[0] not in DISPENSABLE)
    )
    yield from (write, trimmed, replace(trimmed, timestamp_ms=None))
