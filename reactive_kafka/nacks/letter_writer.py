"""Writes dead letters and delayed retries, for as long as it takes until the broker has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from anyio import CancelScope

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, RejectedRecordError
from reactive_kafka.failure.decision import WriteLetter
from reactive_kafka.failure.headers import DISPENSABLE
from reactive_kafka.nacks.letter_topics import LetterTopics
from reactive_kafka.observe.events import Event, Observer, SendFailed
from reactive_kafka.observe.wording import and_more
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.records import RecordBytes
from reactive_kafka.tasks import Spawn

Settle = Callable[[OutgoingRecord], Awaitable[None]]
"""Writes a letter in one transaction with the position behind the nacked record, which settles it.

It raises RejectedRecordError if the broker refuses the letter.
"""

# The broker decides what is too large. A record that could be read must be writable, whatever the
# default of a producer is.
MAX_RECORD_BYTES = 2**31 - 1
MOST_LETTERS = 1024
"""Most letters that wait for the broker at a time."""
# A record that the broker refuses in every form is tried again after this time, in seconds.
REFUSED_S = 10.0
# A write that takes longer, in seconds, makes the channel not ready, and its topic is looked at.
LATE_S = 2.0


@dataclass(slots=True, eq=False)
class _Problem:
    """Why records cannot be written to a topic, or why one record cannot.

    Attributes:
        since: The moment it began, by the monotonic clock, in seconds.
        reason: None: not known yet, because the broker has not answered.
    """

    topic: str
    since: float
    reason: str | None = None


class LetterWriter:
    """Writes the dead letters and delayed retries of one channel."""

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
        self._scopes: set[CancelScope] = set()
        self._is_stopped = False
        # Topic -> why nothing can be written to it.
        self._topic_problems: dict[str, _Problem] = {}
        # One for each letter that is being written, in their order. It has a reason once the
        # broker has refused the letter.
        self._writing: list[_Problem] = []
        self._topics = LetterTopics(settings, connector)
        self._writer = self._make_writer(connector)
        # A transaction is one cluster's. Letters that go to another cluster are written before the
        # position is stored, so a crash may write them twice.
        self._is_one_cluster = self._letters_stay_in_cluster()

    def _letters_stay_in_cluster(self) -> bool:
        if self._settings.dead_letter_queue is None:
            return True
        letters_go_to = self._settings.dead_letter_queue.client.get("bootstrap_servers")
        return letters_go_to == self._settings.client.get("bootstrap_servers")

    def start(self) -> None:
        """Connect, and look after the topics, in the background."""
        if self._writer is not None:
            # In one cluster the channel's own client notices when the brokers are away.
            self._writer.start(watches=not self._is_one_cluster)
            self._in_background(self._topics.run, f"topics of failures of {self.name}")

    async def prepared(self) -> None:
        """Wait until the topics were looked at, or the channel stops.

        The client that reads retry topics waits for it. If it subscribed to a missing topic, the
        broker would create that with its own default number of partitions, and the client would
        see the topic only when it refreshes its metadata.
        """
        await self._until_stopped(self._topics.looked)

    async def stop(self) -> None:
        """End the writing; a letter that is on its way may be written all the same.

        Callers that wait in :meth:`write` get a ChannelClosedError. A letter is waited for only as
        long as the producer's flush takes, so drain before.
        """
        self._is_stopped = True
        for scope in list(self._scopes):
            scope.cancel()
        if self._writer is not None:
            await self._writer.stop()

    async def write(self, letter: WriteLetter, settle: Settle | None = None) -> bool:
        """Write a letter; returns once the broker has it, however long that takes.

        A broker that is away and a topic that is missing are waited for; ``not_ready`` says so. A
        letter that the broker refuses is tried without the longer ones of our headers, then without
        its timestamp, and then every few seconds.

        Args:
            settle: Writes it in a transaction that also settles the nacked record.

        Raises:
            ChannelClosedError: The channel stopped meanwhile.

        Returns:
            True if *settle* has written it, and the nacked record is settled.

        Cancellation:
            The letter may be written all the same.
        """
        if not self._is_one_cluster:
            settle = None
        problem = _Problem(letter.topic, self._clock.monotonic())
        self._writing.append(problem)
        look_again = asyncio.get_running_loop().call_later(
            LATE_S, self._topics.look_again, letter.topic
        )
        try:
            if not await self._until_stopped(lambda: self._write(letter, problem, settle)):
                raise ChannelClosedError(
                    f"channel {self.name!r} stopped before a record was written to {letter.topic}"
                )
        finally:
            look_again.cancel()
            self._writing.remove(problem)
            if not self._writes_to(letter.topic):
                # No letter waits for the topic any more, for example because the partitions
                # have another owner now.
                self._topic_problems.pop(letter.topic, None)
        return settle is not None

    async def _write(self, letter: WriteLetter, problem: _Problem, settle: Settle | None) -> None:
        writer = self._writer
        if writer is None:
            raise ChannelClosedError(f"channel {self.name!r} has no strategy that writes")
        refused = await self._refused_in_every_form(writer, letter, settle)
        if refused is not None:
            problem.since = self._clock.monotonic()
        # It waits here until an operator changes the limits of the topic. Then it may fit with all
        # of its headers again.
        while refused is not None:
            problem.reason = str(refused)
            await asyncio.sleep(REFUSED_S)
            refused = await self._refused_in_every_form(writer, letter, settle)
        self._topic_problems.pop(letter.topic, None)

    async def _refused_in_every_form(
        self, writer: Writer, letter: WriteLetter, settle: Settle | None
    ) -> RejectedRecordError | None:
        """Write a letter with as many of our headers as the broker takes.

        None if the broker has it, otherwise its refusal of the shortest form.
        """
        refused = None
        for form in _forms(letter):
            refused = await self._refusal(writer, form, settle)
            if refused is None:
                return None
        return refused

    async def _refusal(
        self, writer: Writer, letter: WriteLetter, settle: Settle | None
    ) -> RejectedRecordError | None:
        """Write a letter in one form; return the broker's refusal, or None if it has the letter."""
        outgoing = _outbound(letter, await self._topics.partitions(letter.topic))
        try:
            if settle is None:
                await writer.write(outgoing)
            else:
                await settle(outgoing)
        except RejectedRecordError as error:
            # The topic works: it is this record that does not fit.
            self._topic_problems.pop(letter.topic, None)
            return error
        return None

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why letters are not written as they should be, for people; empty if they are."""
        now = self._clock.monotonic()
        lines = list(self._topics.problems.values())
        if self._writer is not None and self._writer.watch.silence is not None:
            lines.append(f"the brokers of its dead letters are away: {self._writer.watch.silence}")
        # One line for each topic and kind of problem is enough, however many letters have it.
        named = set(self._topic_problems)
        for problem in self._topic_problems.values():
            lines.append(
                f"nothing can be written to {problem.topic!r} for {now - problem.since:.0f} s: "
                f"{problem.reason}"
            )
        refused: dict[str, list[_Problem]] = {}
        for problem in self._writing:
            if problem.reason is not None:
                refused.setdefault(problem.topic, []).append(problem)
        for topic, problems in refused.items():
            named.add(topic)
            oldest = min(problems, key=attrgetter("since"))
            line = (
                f"a record is refused by {topic!r} for {now - oldest.since:.0f} s: {oldest.reason}"
            )
            lines.append(and_more(line, len(problems) - 1))
        # The client tries for a long time before it says why. Until then only the time is known.
        for problem in self._writing:
            if problem.topic not in named and now - problem.since >= LATE_S:
                named.add(problem.topic)
                lines.append(
                    f"a record is not confirmed by {problem.topic!r} "
                    f"for {now - problem.since:.0f} s"
                )
        return tuple(lines)

    def on(self, event: Event) -> None:
        """Observe the producers' events, and pass them on."""
        if isinstance(event, SendFailed):
            # A write may fail after its caller has given up. Nothing would end that problem.
            if self._writes_to(event.topic):
                known = self._topic_problems.get(event.topic)
                since = self._clock.monotonic() if known is None else known.since
                self._topic_problems[event.topic] = _Problem(event.topic, since, event.reason)
            self._topics.look_again(event.topic)
        self._observer.on(event)

    def _writes_to(self, topic: str) -> bool:
        """Whether a letter for *topic* is being written."""
        return any(problem.topic == topic for problem in self._writing)

    def _make_writer(self, connector: Connector) -> Writer | None:
        """Make the writer of dead letters and retries; None if no strategy ever writes."""
        settings = self._settings
        client: Mapping[str, Any]
        if settings.dead_letter_queue is not None:
            client = settings.dead_letter_queue.client
        elif settings.delayed_retry is not None or _has_custom_strategy(settings):
            client = {
                name: value
                for name, value in settings.client.items()
                if "producer" in SIDES.get(name, ("producer",))
            }
        else:
            return None
        properties = {
            "client_id": f"reactive-kafka-{self.name}-failures",
            "max_request_size": MAX_RECORD_BYTES,
            **client,
        }
        producer = connector.producer(name=self.name, properties=properties)
        return Writer(
            self.name, producer, self._clock, self, self._spawn, max_in_flight=MOST_LETTERS
        )

    def _in_background(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        async def run() -> None:
            await self._until_stopped(task)

        self._spawn(run, name)

    async def _until_stopped(self, task: Callable[[], Awaitable[None]]) -> bool:
        """Run *task*; False if :meth:`stop` has cut it off."""
        with CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if not self._is_stopped:
                    await task()
                    return True
            finally:
                self._scopes.discard(scope)
        return False


def _has_custom_strategy(settings: IncomingSettings) -> bool:
    """Whether a strategy of the user's, ``module:object``, may want something written."""
    names = (settings.failure_strategy, *settings.failure_routes.values())
    return any(":" in name for name in names)


def _outbound(letter: WriteLetter, partitions: int | None) -> OutgoingRecord:
    """Return what a writer takes; *partitions* is how many the topic has, None if unknown."""
    partition = letter.partition
    if letter.kind == "retry" and partition is not None:
        # The retry topic may have fewer partitions than the source. None goes by the key.
        partition = partition % partitions if partitions else None
    return OutgoingRecord(
        letter.topic,
        RecordBytes(letter.value, letter.key, letter.headers, letter.timestamp_ms),
        partition,
    )


def _forms(letter: WriteLetter) -> Iterator[WriteLetter]:
    """Yield the letter as decided, then shorter ones for a broker that refuses it.

    First it loses the longer texts among our headers, because it may be too large; then its
    timestamp, because the broker may find that too old or too new. The class of the error and the
    place of the record always stay.
    """
    yield letter
    kept = tuple(header for header in letter.headers if header[0] not in DISPENSABLE)
    trimmed = replace(letter, headers=kept)
    yield trimmed
    yield replace(trimmed, timestamp_ms=None)
