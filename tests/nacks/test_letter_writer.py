"""Dead letters and retries are written until the broker has them, into topics that are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

import pytest

from reactive_kafka import FailedRecord, IncomingSettings, Record, Skip, Stop, TopicPartition
from reactive_kafka.broker.client import Connector, Inspector
from reactive_kafka.clock import Clock
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    EncodeError,
    FatalBrokerError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.events import SendFailed
from reactive_kafka.failure import Decision, WriteLetter
from reactive_kafka.failure.strategies import ChannelStrategies
from reactive_kafka.nacks.handling import awaited_decision
from reactive_kafka.nacks.letter_topics import LetterTopics
from reactive_kafka.nacks.letter_writer import LetterWriter
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import Recorder, in_virtual_time, make_broker, now, settle_down, until
from tests.config.values import assigned_partition, dead_letter_settings, delayed_retry_settings
from tests.failure.samples import failed
from tests.simulation.held import timers

DEAD, RETRY = "dead-letter-topic-orders", "orders_retry_1000"
PLAIN = WriteLetter(
    topic=DEAD,
    value=b"v",
    key=b"k",
    headers=(("dead-letter-reason", b"r"), ("a", b"1")),
    timestamp_ms=5,
)


class Awaiting:
    """A strategy of the user's that takes its time."""

    async def decide(self, record: FailedRecord) -> Decision:
        await asyncio.sleep(1)
        if record.key is None:
            raise OSError("no rule")
        return Skip()


class Wrong:
    """One that does not keep to the protocol."""

    def decide(self, record: FailedRecord) -> Any:
        return "skip"


class Unshown:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Answering:
    """One that answers what a test says, at once or later, or raises it."""

    answer: Any = None

    def decide(self, record: FailedRecord) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class AnsweringLater(Answering):
    async def decide(self, record: FailedRecord) -> Any:
        await asyncio.sleep(1)
        return super().decide(record)


awaiting, wrong = Awaiting(), Wrong()
answering, answering_later = Answering(), AnsweringLater()


def settings(**changes: Any) -> IncomingSettings:
    plain: dict[str, Any] = {
        "name": "orders",
        "topics": ("orders",),
        "group_id": "billing",
        "failure_strategy": "delayed-retry-topic",
        "dead_letter_queue": dead_letter_settings(topic=DEAD),
        "delayed_retry": delayed_retry_settings(topics=(RETRY,), max_retries=1),
    }
    return IncomingSettings(**(plain | changes))


class Fixture:
    """Strategies, and a writer of letters on a broker, with the events of both."""

    def __init__(
        self,
        strategies: ChannelStrategies,
        letters: LetterWriter,
        broker: MemoryBroker,
        recorder: Recorder,
    ) -> None:
        self.strategies = strategies
        self.letters = letters
        self.broker = broker
        self.recorder = recorder

    def records(self, topic: str = DEAD) -> list[Any]:
        """What stands in a topic."""
        count = self.broker.topics().get(topic, 0)
        return [
            record
            for number in range(count)
            for record in self.broker.log(TopicPartition(topic, number))
        ]

    def decide(self, record: FailedRecord) -> Decision | Awaitable[Decision]:
        name = self.strategies.name_for(record.reason)
        decision = self.strategies.decide(name, record)
        if isinstance(decision, Stop | Skip | WriteLetter):
            return decision
        return awaited_decision(name, decision, record)

    @property
    def reasons(self) -> str:
        return " | ".join(self.letters.not_ready)


@asynccontextmanager
async def running(
    broker: MemoryBroker | None = None,
    *,
    partitions: int = 4,
    is_started: bool = True,
    **changes: Any,
) -> AsyncIterator[Fixture]:
    broker = broker or make_broker(partitions)
    broker.create_topic("orders", partitions)
    recorder, tasks = Recorder(), list[asyncio.Task[None]]()

    def spawn(
        task: Callable[[], Awaitable[None]], name: str, context: Context | None = None
    ) -> None:
        async def run() -> None:
            await task()

        tasks.append(asyncio.create_task(run(), name=name))

    loop = asyncio.get_running_loop()
    strategies = ChannelStrategies(settings(**changes))
    letters = LetterWriter(
        settings(**changes), broker.connector(), Clock(monotonic=loop.time), recorder, spawn
    )
    if is_started:
        letters.start()
    yield Fixture(strategies, letters, broker, recorder)
    await letters.stop()
    async with asyncio.timeout(30):
        # Nothing is left behind, and nothing has raised.
        await asyncio.gather(*tasks)
    await broker.close()


@in_virtual_time
async def test_missing_topics_are_created_with_the_partitions_of_the_source() -> None:
    async with running(partitions=6) as it:
        await until(lambda: {DEAD, RETRY} <= it.broker.topics().keys())
        assert it.broker.topics() == {"orders": 6, DEAD: 6, RETRY: 6}
        assert it.letters.not_ready == ()


@pytest.mark.parametrize(
    "source",
    [
        {"topics": (), "pattern": "ord.*"},
        {"topics": (), "assign": (assigned_partition(TopicPartition("orders", 0)),)},
    ],
    ids=["pattern", "assign"],
)
@in_virtual_time
async def test_the_source_may_be_a_pattern_or_single_partitions(source: dict[str, Any]) -> None:
    async with running(partitions=5, **source) as it:
        await until(lambda: it.broker.topics().get(DEAD) == it.broker.topics().get(RETRY) == 5)


@in_virtual_time
async def test_the_brokers_own_topics_are_no_source_whatever_the_pattern() -> None:
    broker = MemoryBroker(auto_create=False)
    broker.create_topic("__consumer_offsets", 50)
    async with running(broker, partitions=3, topics=(), pattern="(?!dead|.*retry).*") as it:
        await until(lambda: {DEAD, RETRY} <= it.broker.topics().keys())
        assert it.broker.topics()[DEAD] == it.broker.topics()[RETRY] == 3


@in_virtual_time
async def test_whoever_reads_retries_can_wait_until_their_topics_are_there() -> None:
    broker = make_broker()
    broker.down = True
    async with running(broker, partitions=6) as it:
        waiting = asyncio.create_task(it.letters.prepared())
        await asyncio.sleep(5)
        assert not waiting.done()
        it.broker.down = False
        await waiting
        assert it.broker.topics() == {"orders": 6, DEAD: 6, RETRY: 6}


@in_virtual_time
async def test_a_stop_ends_the_wait_for_the_topics() -> None:
    broker = make_broker()
    broker.down = True
    async with running(broker) as it:
        waiting = asyncio.create_task(it.letters.prepared())
        await asyncio.sleep(5)
        await it.letters.stop()
        await asyncio.wait_for(waiting, 1)


@in_virtual_time
async def test_topics_that_are_there_stay_as_they_are() -> None:
    broker = make_broker()
    broker.create_topic(DEAD, 2)
    async with running(broker, partitions=6) as it:
        await until(lambda: RETRY in it.broker.topics())
        assert it.broker.topics()[DEAD] == 2


@in_virtual_time
async def test_a_topic_that_cannot_be_created_is_named_until_it_is_there() -> None:
    """Row H-1 of the faults."""
    broker = MemoryBroker(auto_create=False)
    broker.fail_next("create_topic", FatalBrokerError("not allowed to create"), times=100)
    async with running(broker, delayed_retry=None, failure_strategy="dead-letter-queue") as it:
        await until(lambda: it.letters.not_ready)
        assert it.letters.not_ready == (
            f"the dead-letter topic {DEAD!r} does not exist, or the right to see it is missing, "
            "and it was not created: not allowed to create",
        )
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(60)
        assert not writing.done()
        it.broker.create_topic(DEAD, 1)
        await asyncio.wait_for(writing, 60)
        await until(lambda: not it.letters.not_ready, within_s=60)
        assert len(it.records()) == 1


class Remembering:
    """A connector that remembers who looked at the cluster."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.inspectors: list[Inspector] = []

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        self.inspectors.append(self._connector.inspector(properties=properties))
        return self.inspectors[-1]


@in_virtual_time
async def test_whoever_looked_at_the_cluster_is_closed_again_whatever_it_met() -> None:
    broker = make_broker()
    broker.create_topic("orders", 1)
    connector: Any = Remembering(broker.connector())
    broker.fail_next("topics", TransientBrokerError("no answer"))
    topics = LetterTopics(settings(delayed_retry=None), connector)
    looking = asyncio.create_task(topics.run())
    assert await topics.partitions(DEAD) == 1
    looking.cancel()
    assert len(connector.inspectors) == 2
    for inspector in connector.inspectors:
        with pytest.raises(BrokerError, match="not started"):
            await inspector.topics()


@in_virtual_time
async def test_however_many_letters_there_are_a_topic_that_cannot_be_created_costs_a_look_a_second() -> (
    None
):
    broker = make_broker()
    broker.create_topic("orders", 1)
    broker.fail_next("create_topic", FatalBrokerError("no right"), times=10**5)
    broker.delay_next("topics", 0.02, times=10**5)
    connector: Any = Remembering(broker.connector())
    topics = LetterTopics(settings(delayed_retry=None), connector)
    looking = asyncio.create_task(topics.run())
    began, waits = now(), list[float]()

    async def write(number: int) -> None:
        await asyncio.sleep(number / 100)
        asked = now()
        assert await topics.partitions(DEAD) is None
        waits.append(now() - asked)

    await asyncio.gather(*(write(number) for number in range(500)))
    assert now() - began < 5.2
    assert len(connector.inspectors) <= 6
    assert max(waits) < 0.1
    looking.cancel()


@in_virtual_time
async def test_a_letter_for_a_topic_that_was_not_created_creates_it_once_its_source_is_there() -> (
    None
):
    broker = MemoryBroker(auto_create=False)
    broker.create_topic("other", 1)
    connector = broker.connector()
    topics = LetterTopics(settings(delayed_retry=None), connector)
    looking = asyncio.create_task(topics.run())
    # Looks are half a minute apart by now.
    await asyncio.sleep(40)
    broker.create_topic("orders", 3)
    async with asyncio.timeout(1):
        assert await topics.partitions(DEAD) == 3
    looking.cancel()


@in_virtual_time
async def test_a_topic_that_the_broker_makes_at_its_first_use_need_not_be_created() -> None:
    broker = make_broker()
    broker.fail_next("create_topic", FatalBrokerError("this broker creates none"), times=100)
    async with running(broker) as it:
        await asyncio.wait_for(it.letters.write(PLAIN), 5)
        await asyncio.wait_for(
            it.letters.write(
                WriteLetter(topic=RETRY, value=b"", key=b"", partition=2, kind="retry")
            ),
            5,
        )
        await until(lambda: not it.letters.not_ready, within_s=60)


@in_virtual_time
async def test_a_topic_that_somebody_else_creates_at_the_same_moment_is_no_problem() -> None:
    broker = make_broker()
    broker.fail_next("create_topic", FatalBrokerError("exists already"), times=2, stored=True)
    async with running(broker) as it:
        await until(lambda: {DEAD, RETRY} <= it.broker.topics().keys())
        await settle_down()
        assert it.letters.not_ready == ()


@in_virtual_time
async def test_a_broker_that_is_away_at_the_start_is_named_and_waited_for() -> None:
    broker = make_broker()
    broker.down = True
    async with running(broker) as it:
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await until(lambda: "cannot be looked at" in it.reasons)
        assert DEAD in it.reasons
        await asyncio.sleep(60)
        assert not writing.done()
        it.broker.down = False
        await asyncio.wait_for(writing, 60)
        await until(lambda: not it.letters.not_ready, within_s=60)
        assert it.broker.topics()[DEAD] == 4


@in_virtual_time
async def test_a_letter_is_written_as_it_is_and_only_then_the_write_returns() -> None:
    async with running() as it:
        answer = it.broker.hold("send", answer=True)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await answer.arrived()
        await asyncio.sleep(5)
        assert not writing.done()
        answer.release()
        await writing
        (record,) = it.records()
        assert (record.value, record.key, record.headers, record.timestamp) == (
            b"v",
            b"k",
            PLAIN.headers,
            5,
        )


@in_virtual_time
async def test_a_topic_that_goes_away_makes_the_channel_not_ready_until_the_letter_is_there() -> (
    None
):
    """Row H-1 of the faults."""
    async with running() as it:
        await it.letters.write(PLAIN)
        it.broker.topic_away(DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(60)
        assert f"nothing can be written to {DEAD!r} for 60 s: " in it.reasons
        assert {event.topic for event in it.recorder.of(SendFailed)} == {DEAD}
        assert not writing.done()
        it.broker.topic_back(DEAD)
        away, started = it.reasons, now()
        await writing
        assert away
        assert now() - started <= 10
        assert it.letters.not_ready == ()
        assert len(it.records()) == 2


@in_virtual_time
async def test_a_topic_that_was_deleted_is_created_again() -> None:
    broker = MemoryBroker(auto_create=False)
    async with running(broker) as it:
        await it.letters.write(PLAIN)
        it.broker.delete_topic(DEAD)
        await asyncio.wait_for(it.letters.write(PLAIN), 60)
        assert len(it.records()) == 1
        assert it.broker.topics()[DEAD] == 4


@in_virtual_time
async def test_a_topic_that_is_deleted_now_and_then_is_created_as_soon_as_the_first_time() -> None:
    took = list[float]()
    async with running(MemoryBroker(auto_create=False)) as it:
        await it.letters.write(PLAIN)
        for _ in range(10):
            await asyncio.sleep(20)
            it.broker.delete_topic(DEAD)
            began = now()
            await it.letters.write(PLAIN)
            took.append(now() - began)
    assert max(took) <= took[0] + 1, took


@in_virtual_time
async def test_a_letter_that_is_written_leaves_no_timer_behind() -> None:
    """At its time it would have the topics looked at, by a connection of its own."""
    async with running() as it:
        for _ in range(3):
            await it.letters.write(PLAIN)
        left = timers(asyncio.get_running_loop())
        assert not [name for name in left if "letter_topics" in name], left


@in_virtual_time
async def test_what_could_be_read_can_be_written_whatever_a_producers_default_is() -> None:
    async with running() as it:
        await asyncio.wait_for(
            it.letters.write(WriteLetter(topic=DEAD, value=b"v" * 3_000_000, key=None)), 5
        )


@in_virtual_time
async def test_a_letter_whose_partition_has_no_leader_waits_for_one_and_is_named() -> None:
    """Row H-1 of the faults."""
    async with running() as it:
        await it.letters.write(PLAIN)
        partitions = [TopicPartition(DEAD, number) for number in range(it.broker.topics()[DEAD])]
        for partition in partitions:
            it.broker.leader_away(partition)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(60)
        assert f"nothing can be written to {DEAD!r} for 60 s: " in it.reasons
        assert not writing.done()
        assert len(it.recorder.of(SendFailed)) < 60, "it is tried without haste"
        for partition in partitions:
            it.broker.leader_back(partition)
        await writing
        assert it.letters.not_ready == ()
        assert len(it.records()) == 2


@in_virtual_time
async def test_a_letter_that_is_too_large_with_our_headers_loses_the_long_ones() -> None:
    """Row H-2 of the faults."""
    async with running() as it:
        it.broker.fail_next("send", RejectedRecordError("too large"), of=DEAD)
        headers = tuple(
            (name, b"x")
            for name in ("dead-letter-reason", "dead-letter-cause", "dead-letter-topic", "a")
        )
        await it.letters.write(
            WriteLetter(topic=DEAD, value=b"v", key=None, headers=headers, timestamp_ms=5)
        )
        (record,) = it.records()
        assert [name for name, _ in record.headers] == ["dead-letter-topic", "a"]
        assert record.timestamp == 5
        assert it.letters.not_ready == ()


@in_virtual_time
async def test_a_letter_whose_timestamp_is_refused_is_written_without_it() -> None:
    """Row F14 of the faults."""
    async with running() as it:
        it.broker.fail_next(
            "send", RejectedRecordError("the timestamp is out of range"), times=2, of=DEAD
        )
        await it.letters.write(PLAIN)
        (record,) = it.records()
        assert record.timestamp > 5


@in_virtual_time
async def test_a_letter_that_does_not_fit_is_tried_on_without_haste_and_named() -> None:
    """Row H-2 of the faults."""
    async with running() as it:
        await it.letters.write(PLAIN)
        it.broker.fail_next("send", RejectedRecordError("too large"), times=9, of=DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(13)
        # Three forms at once, and again ten seconds later.
        assert len(it.recorder.of(SendFailed)) == 6
        assert it.reasons == f"a record is refused by {DEAD!r} for 13 s: too large"
        assert not writing.done()
        await writing
        assert it.reasons == ""


@in_virtual_time
async def test_a_letter_is_refused_since_its_first_refusal_and_not_since_it_waits() -> None:
    async with running() as it:
        await it.letters.write(PLAIN)
        it.broker.topic_away(DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(60)
        it.broker.fail_next("send", RejectedRecordError("too large"), times=10**4, of=DEAD)
        it.broker.topic_back(DEAD)
        await until(lambda: "is refused" in it.reasons, 20)
        assert it.reasons == f"a record is refused by {DEAD!r} for 0 s: too large"
        await it.letters.stop()
        await asyncio.wait([writing])


@in_virtual_time
async def test_another_letter_does_not_hide_the_one_that_does_not_fit() -> None:
    async with running() as it:
        await it.letters.write(PLAIN)
        it.broker.fail_next("send", RejectedRecordError("too large"), times=3, of=DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(1)
        await it.letters.write(PLAIN)
        assert len(it.letters.not_ready) == 1
        await writing


@in_virtual_time
async def test_many_letters_that_do_not_fit_are_one_line_about_the_first_of_them() -> None:
    async with running() as it:
        await it.letters.write(PLAIN)
        it.broker.fail_next("send", RejectedRecordError("too large"), times=10**4, of=DEAD)
        writing = [asyncio.create_task(it.letters.write(PLAIN))]
        await asyncio.sleep(2)
        writing += [asyncio.create_task(it.letters.write(PLAIN)) for _ in range(99)]
        await asyncio.sleep(3)
        assert it.letters.not_ready == (
            f"a record is refused by {DEAD!r} for 5 s: too large (99 more like it)",
        )
        await it.letters.stop()
        await asyncio.wait(writing)


@in_virtual_time
async def test_a_retry_keeps_its_partition_modulo_those_of_its_topic() -> None:
    broker = make_broker()
    broker.create_topic(RETRY, 4)
    async with running(broker, partitions=8) as it:
        for partition in (3, 6):
            decision = it.decide(failed(partition=TopicPartition("orders", partition)))
            assert isinstance(decision, WriteLetter)
            await it.letters.write(decision)
        assert [len(it.broker.log(TopicPartition(RETRY, number))) for number in range(4)] == [
            0,
            0,
            1,
            1,
        ]


@in_virtual_time
async def test_a_stop_ends_who_waits_and_what_comes_after_it() -> None:
    async with running() as it:
        it.broker.topic_away(DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(5)
        await it.letters.stop()
        with pytest.raises(ChannelClosedError, match=DEAD):
            await writing
        with pytest.raises(ChannelClosedError):
            await it.letters.write(PLAIN)


@in_virtual_time
async def test_a_stop_while_no_broker_answers_leaves_nothing_behind() -> None:
    broker = make_broker()
    broker.down = True
    async with running(broker):
        # The end of this block waits for every task.
        await asyncio.sleep(5)


@in_virtual_time
async def test_who_gives_up_waiting_gets_its_own_cancellation() -> None:
    async with running() as it:
        it.broker.topic_away(DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(1)
        writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled()


@in_virtual_time
async def test_a_write_that_the_broker_says_nothing_about_is_named_within_seconds() -> None:
    async with running() as it:
        hold = it.broker.hold("send", of=DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(1)
        assert it.letters.not_ready == ()
        await asyncio.sleep(2)
        assert it.letters.not_ready == (f"a record is not confirmed by {DEAD!r} for 3 s",)
        hold.release()
        await writing
        assert it.letters.not_ready == ()


@in_virtual_time
async def test_a_topic_that_went_is_made_again_before_the_client_gives_a_write_up() -> None:
    async with running() as it:
        # As a client that waits for the topic's metadata.
        hold = it.broker.hold("send", of=DEAD)
        writing = asyncio.create_task(it.letters.write(PLAIN))
        await asyncio.sleep(0.5)
        it.broker.delete_topic(DEAD)
        await until(lambda: DEAD in it.broker.topics(), 5)
        hold.release()
        await writing


@in_virtual_time
async def test_a_topic_that_nobody_waits_for_any_more_keeps_no_channel_from_being_ready() -> None:
    async with running() as fixture:
        fixture.broker.topic_away(DEAD)
        writing = asyncio.ensure_future(fixture.letters.write(PLAIN))
        await until(lambda: fixture.letters.not_ready, 60)
        # Its partition has gone.
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert fixture.letters.not_ready == ()


@in_virtual_time
async def test_a_write_that_fails_when_nobody_waits_for_it_any_more_keeps_no_channel_from_being_ready() -> (
    None
):
    async with running() as fixture:
        hold = fixture.broker.hold("send", of=DEAD)
        writing = asyncio.ensure_future(fixture.letters.write(PLAIN))
        await hold.arrived()
        # Its partition has gone while the request is on its way.
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        for number in range(4):
            fixture.broker.leader_away(TopicPartition(DEAD, number))
        hold.release()
        await until(lambda: fixture.recorder.of(SendFailed))
        assert fixture.letters.not_ready == ()


@in_virtual_time
async def test_a_channel_whose_strategies_write_nothing_connects_to_nothing() -> None:
    async with running(failure_strategy="fail", dead_letter_queue=None, delayed_retry=None) as it:
        await settle_down()
        assert it.broker.topics() == {"orders": 4}
        assert it.decide(failed()) == Stop()
        with pytest.raises(ChannelClosedError):
            await it.letters.write(PLAIN)


async def test_a_strategy_that_raises_stops_the_channel_with_what_it_raised() -> None:
    async with running(failure_strategy="dead-letter-queue", is_started=False) as it:
        record = failed(replacement=Record(object()))
        decision = it.decide(record)
        assert isinstance(decision, Stop)
        assert isinstance(decision.error, EncodeError)


@in_virtual_time
async def test_a_custom_strategy_may_be_awaited_and_its_errors_stop_the_channel() -> None:
    name = f"{__name__}:awaiting"
    async with running(failure_strategy=name, dead_letter_queue=None, delayed_retry=None) as it:
        decision, broken = it.decide(failed()), it.decide(failed(key=None))
        assert not isinstance(decision, Stop | Skip | WriteLetter)
        assert not isinstance(broken, Stop | Skip | WriteLetter)
        assert await decision == Skip()
        stop = await broken
        assert isinstance(stop, Stop)
        assert isinstance(stop.error, OSError)
        assert isinstance(stop.error.__context__, ValueError)
        # Without a dead-letter queue.
        await it.letters.write(WriteLetter(topic="anywhere", value=b"v", key=None))
        assert len(it.records("anywhere")) == 1


async def test_what_is_no_decision_stops_the_channel() -> None:
    async with running(failure_strategy=f"{__name__}:wrong", is_started=False) as it:
        decision = it.decide(failed())
        assert isinstance(decision, Stop)
        assert "Stop, Skip or Write, not str" in str(decision.error)


@asynccontextmanager
async def answers(answer: Any) -> AsyncIterator[list[Stop]]:
    """What strategies of the user's that answer so come to: one that does at once, and one that is
    awaited.
    """
    stops = []
    for name, strategy in (("answering", answering), ("answering_later", answering_later)):
        strategy.answer = answer
        async with running(failure_strategy=f"{__name__}:{name}", is_started=False) as it:
            decision = it.decide(failed())
            decision = (
                decision if isinstance(decision, Stop | Skip | WriteLetter) else await decision
            )
            assert isinstance(decision, Stop)
            stops.append(decision)
    yield stops


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"headers": None}, "headers = None"),
        ({"headers": "trace"}, "headers = 'trace'"),
        ({"headers": [("trace", "abc")]}, "headers: ('trace', 'abc')"),
        ({"headers": [("trace", b"1"), ("trace",)]}, "headers: ('trace',)"),
        ({"headers": [("lone \ud800", b"1")]}, "headers: ('lone \\ud800', b'1')"),
        ({"value": "text"}, "value = 'text'"),
        ({"key": 5}, "key = 5"),
        ({"topic": ""}, "topic = ''"),
        ({"topic": None}, "topic = None"),
        ({"topic": "bad name!"}, "topic = 'bad name!'"),
        ({"partition": -1}, "partition = -1"),
        ({"partition": "0"}, "partition = '0'"),
        ({"timestamp_ms": 1.5}, "timestamp_ms = 1.5"),
        ({"timestamp_ms": 2**63}, "timestamp_ms = 9223372036854775808"),
        ({"kind": "letter"}, "kind = 'letter'"),
        ({"value": Unshown()}, "value = <Unshown>"),
    ],
    ids=[f"{number}" for number in range(16)],
)
@in_virtual_time
async def test_a_write_that_can_never_be_written_stops_the_channel_and_names_strategy_field_and_value(
    wrong: dict[str, Any], said: str
) -> None:
    async with answers(
        WriteLetter(**({"topic": "t", "value": b"v", "key": None} | wrong))
    ) as stops:
        for stop, name in zip(stops, ("answering", "answering_later"), strict=True):
            assert f"the failure strategy '{__name__}:{name}' decided" in str(stop.error)
            assert said in str(stop.error)


@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
@in_virtual_time
async def test_whatever_a_strategy_raises_stops_the_channel(error: BaseException) -> None:
    async with answers(error) as stops:
        assert [stop.error for stop in stops] == [error, error]


@in_virtual_time
async def test_a_stop_for_what_is_no_exception_stops_the_channel_and_says_so() -> None:
    async with answers(Stop("because")) as stops:  # type: ignore[arg-type]
        assert all(
            "decided Stop('because'), which is no exception" in str(stop.error) for stop in stops
        )


@in_virtual_time
async def test_a_cancellation_of_who_waits_for_a_decision_is_no_decision() -> None:
    answering_later.answer = Skip()
    async with running(failure_strategy=f"{__name__}:answering_later", is_started=False) as it:
        deciding = asyncio.ensure_future(it.decide(failed()))  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        deciding.cancel()
        await asyncio.wait([deciding])
        assert deciding.cancelled()


async def test_the_route_decides_and_poison_is_dead_lettered_whatever_the_route() -> None:
    async with running(
        failure_strategy="fail", failure_routes={"KeyError": "ignore"}, is_started=False
    ) as it:
        assert it.strategies.name_for(ValueError()) == "fail"
        assert it.decide(failed()) == Stop()
        assert it.decide(failed(reason=KeyError())) == Skip()
        letter = it.strategies.decide("dead-letter-queue", failed(reason=KeyError()))
        assert isinstance(letter, WriteLetter)
        assert letter.topic == DEAD


@in_virtual_time
async def test_a_lost_answer_may_double_a_letter_and_never_lose_it() -> None:
    """Row H-4 of the faults."""
    async with running() as it:
        it.broker.fail_next("send", TransientBrokerError("no answer"), stored=True, of=DEAD)
        await it.letters.write(PLAIN)
        assert len(it.records()) == 2
