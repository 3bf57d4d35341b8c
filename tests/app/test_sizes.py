"""What an application holds at rest does not grow with what has happened to it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from reactive_kafka import App, Message, Record, TransientBrokerError
from reactive_kafka.errors import ReplyTimeoutError
from reactive_kafka.testing import TestApp
from tests.app.helpers import in_virtual_time, make_broker, now, rebalanced, running, tp, until
from tests.app.sizes import grown, kept_frames, sizes
from tests.simulation.held import timers

EPISODES = 10
BESIDE = (
    "reactive_kafka.broker.memory",
    "reactive_kafka.testing",
    "tests",
    "_pytest",
    "hypothesis",
    "pytest",
)

BOUNDED = {
    "items in RecordPasts._records": "the last records that something happened to, MOST_RECORDS",
    "items in RecordPasts._records[]": "MOST_ENTRIES for each, and the parts of its key",
    "objects of reactive_kafka.observe.record_pasts.PastEvent": "the same",
    "items in Allowance._lines": "the kinds of log lines, KINDS_KEPT",
    "items in Allowance._lines[]": "the same",
    "objects of reactive_kafka.observe.bursts._Line": "the same",
    "items in RecentEvents._entries[][]": "the last events of a channel, MOST_ENTRIES of a kind",
    "items in RecentEvents._entries[][][]": "the keys of these",
    "objects of reactive_kafka.observe.recent_events.TimelineEntry": "the same",
    "items in TopicQueues.partition_of_key": "the partitions of keys, MOST_KEYS",
    "items in Requests._late": "requests that were given up, MOST_LATE",
    "items in closure of _noting_calls.<locals>.begin.*": "the calls that a TestApp notes",
}
"""What may grow up to a bound that the episodes do not reach."""

LEFT_BEHIND = {
    "formats.registered.channel_schemas.ChannelSchemas.forget": "a refusal of the registry is forgotten after a minute, REFUSED_S",
}
"""Timers that may outlive a run: they touch nothing but what they hold."""


class Service:
    """An application of several channels, and what can happen to it. Each episode ends where it
    began.
    """

    def __init__(self) -> None:
        quick = {"group_id": "billing", "auto_offset_reset": "earliest", "commit_interval": "100ms"}
        self.seen = 0
        self.go_on = asyncio.Event()
        self.app = App(
            {
                "schema_registry": {"url": "memory://"},
                "incoming": {
                    "orders": {**quick, "failure_strategy": "dead-letter-queue"},
                    "later": {
                        **quick,
                        "group_id": "later",
                        "failure_strategy": "delayed-retry-topic",
                        "delayed_retry": {"topics": ["later_retry_1000"]},
                    },
                    "once": {**quick, "group_id": "once", "failure_strategy": "dead-letter-queue"},
                    "keyed": {
                        **quick,
                        "group_id": "keyed",
                        "ordering": "key",
                        "retry": {"max_attempts": 2},
                    },
                    "fresh": {**quick, "group_id": "fresh", "max_record_age": "1h"},
                    "staged": {**quick, "group_id": "staged"},
                    "avro": {
                        **quick,
                        "group_id": "avro",
                        "value_deserializer": "avro",
                        "failure_strategy": "ignore",
                    },
                },
                "memory": {"stage": {}},
                "outgoing": {
                    "invoices": {},
                    "exact": {"transactional_id": "exact"},
                    "requests": {"reply_topic": "replies"},
                },
            }
        )
        self._declare()

    def _declare(self) -> None:
        app = self.app

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def orders(message: Message[bytes]) -> bytes:
            self.seen += 1
            if message.payload == b"bad":
                raise ValueError("bad")
            if message.payload == b"slow":
                await self.go_on.wait()
            return message.payload

        @app.incoming("later")
        async def later(message: Message[bytes]) -> None:
            self.seen += 1
            if message.topic == "later":
                raise ValueError("later")

        @app.incoming("once")
        @app.outgoing("exact")
        async def once(message: Message[bytes]) -> AsyncIterator[bytes]:
            self.seen += 1
            yield b"first"
            if message.payload == b"bad":
                raise ValueError("bad")

        @app.incoming("keyed")
        async def keyed(message: Message[bytes]) -> None:
            self.seen += 1
            if message.attempt == 1:
                raise ValueError("again")

        @app.incoming("fresh")
        async def fresh(message: Message[bytes]) -> None:
            self.seen += 1

        @app.incoming("staged")
        @app.outgoing("stage")
        async def staged(message: Message[bytes]) -> bytes:
            return message.payload

        @app.incoming("stage")
        async def stage(value: bytes) -> None:
            self.seen += 1

        @app.incoming("avro")
        async def avro(message: Message[dict[str, Any]]) -> None:
            self.seen += 1

        @app.every("1s")
        async def job() -> None:
            self.seen += 1


Episode = Callable[[Service, TestApp, int], Awaitable[None]]


async def handled(
    service: Service, test: TestApp, topic: str, value: bytes, calls: int = 1, **more: Any
) -> None:
    """Send a record and wait until it has been handled."""
    before = service.seen
    test.broker.produce(topic, value, partition=0, **more)
    await until(lambda: service.seen >= before + calls, 60)


async def records(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "orders", b"good")


async def nacks(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "orders", b"bad")


async def keys(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "keyed", b"good", 2, key=b"key %d" % number)


async def values_in_memory(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "staged", b"good")


async def delayed_retries(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "later", b"good", 2)


async def transactions(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "once", b"good")


async def letters_in_transactions(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "once", b"bad")


async def letters_of_partitions_that_go(service: Service, test: TestApp, number: int) -> None:
    test.broker.topic_away("dead-letter-topic-once")
    await handled(service, test, "once", b"bad")
    await test.app.channel("once").seek(tp(0, "once"), "end")
    test.broker.topic_back("dead-letter-topic-once")


async def lost_answers(service: Service, test: TestApp, number: int) -> None:
    test.broker.fail_next("end", TransientBrokerError("no answer"), stored=True)
    await handled(service, test, "once", b"good")


async def seeks(service: Service, test: TestApp, number: int) -> None:
    await test.app.channel("orders").seek(tp(), 0)


async def seeks_under_a_handler(service: Service, test: TestApp, number: int) -> None:
    service.go_on.clear()
    await handled(service, test, "orders", b"slow")
    await test.app.channel("orders").seek(tp(), "end")
    service.go_on.set()


async def seeks_of_exactly_once(service: Service, test: TestApp, number: int) -> None:
    await handled(service, test, "once", b"good")
    await test.app.channel("once").seek(tp(0, "once"), "end")


async def rebalances(service: Service, test: TestApp, number: int) -> None:
    await rebalanced(test)


async def rebalances_under_a_handler(service: Service, test: TestApp, number: int) -> None:
    service.go_on.clear()
    await handled(service, test, "orders", b"slow")
    await rebalanced(test)
    service.go_on.set()


async def lost_sessions(service: Service, test: TestApp, number: int) -> None:
    for member in test.broker.members("billing"):
        test.broker.expire("billing", member)
    await until(lambda: test.app.channel("orders").is_ready, 60)


async def pauses(service: Service, test: TestApp, number: int) -> None:
    test.app.channel("orders").pause()
    test.app.channel("orders").resume()


async def seeks_over_a_retry_that_a_pause_holds_up(
    service: Service, test: TestApp, number: int
) -> None:
    keyed = test.app.channel("keyed")
    await handled(service, test, "keyed", b"good")
    keyed.pause()
    began = now()
    await until(lambda: now() > began + 10, 20)
    await keyed.seek(tp(0, "keyed"), "end")
    keyed.resume()


async def restarts(service: Service, test: TestApp, number: int) -> None:
    await test.app.channel("orders").stop()
    await test.app.channel("orders").start()
    await until(lambda: test.app.channel("orders").is_ready, 60)


async def recreated_topics(service: Service, test: TestApp, number: int) -> None:
    test.broker.delete_topic("orders")
    test.broker.create_topic("orders", 1)
    await handled(service, test, "orders", b"new")


async def unreadable_places(service: Service, test: TestApp, number: int) -> None:
    broker = test.broker
    end = broker.end(tp())
    broker.spoil(tp(), end, end)
    test.broker.produce("orders", b"spoiled", partition=0)
    began = now()
    await until(lambda: now() > began + 3)
    broker.mend(tp())
    before = service.seen
    await until(lambda: service.seen > before, 60)


async def outages(service: Service, test: TestApp, number: int) -> None:
    test.broker.down = True
    began = now()
    await until(lambda: now() > began + 7, 20)
    test.broker.down = False
    await handled(service, test, "orders", b"good")


async def emitters(service: Service, test: TestApp, number: int) -> None:
    await test.app.emitter("invoices").send(b"x", key=b"%d" % number)
    async with test.app.emitter("exact").transaction() as transaction:
        await transaction.send(b"x")


async def requests_without_a_reply(service: Service, test: TestApp, number: int) -> None:
    with suppress(ReplyTimeoutError):
        await test.app.emitter("requests").request(Record(b"x", partition=0), timeout=1)


async def unknown_schemas(service: Service, test: TestApp, number: int) -> None:
    test.broker.produce("avro", b"\0" + (1000 + number).to_bytes(4, "big") + b"x", partition=0)

    def ignored() -> int:
        return sum(
            one.nacked.get("ignore", 0) for one in test.app.channel("avro").facts().totals.values()
        )

    await until(lambda: ignored() > number, 60)


async def skipped_records(service: Service, test: TestApp, number: int) -> None:
    test.broker.produce("fresh", b"old", partition=0, timestamp_ms=1000)

    def skipped() -> int:
        return sum(
            sum(one.skipped.values()) for one in test.app.channel("fresh").facts().totals.values()
        )

    before = skipped()
    await until(lambda: skipped() > before, 60)


async def jobs(service: Service, test: TestApp, number: int) -> None:
    before = service.seen
    await until(lambda: service.seen > before, 60)


async def looks_from_outside(service: Service, test: TestApp, number: int) -> None:
    test.app.health()
    test.app.facts()
    await test.app.channel("orders").lag()
    await test.app.channel("orders").committed()


EPISODE_KINDS: list[Episode] = [
    records,
    nacks,
    keys,
    values_in_memory,
    delayed_retries,
    transactions,
    letters_in_transactions,
    letters_of_partitions_that_go,
    lost_answers,
    seeks,
    seeks_under_a_handler,
    seeks_of_exactly_once,
    rebalances,
    rebalances_under_a_handler,
    lost_sessions,
    pauses,
    seeks_over_a_retry_that_a_pause_holds_up,
    restarts,
    recreated_topics,
    unreadable_places,
    outages,
    emitters,
    requests_without_a_reply,
    unknown_schemas,
    skipped_records,
    jobs,
    looks_from_outside,
]


async def at_rest(test: TestApp) -> None:
    """Let a minute go by, and collect what nobody holds any more."""
    await asyncio.sleep(60)
    gc.collect()


@pytest.mark.parametrize("episode", EPISODE_KINDS, ids=lambda one: one.__name__)
@in_virtual_time
async def test_sizes_at_rest_do_not_grow_with_the_number_of(episode: Episode) -> None:
    service = Service()
    async with running(service.app, broker=make_broker()) as test:
        await handled(service, test, "orders", b"good")
        looks = list[Counter[str]]()
        for phase in range(3):
            for number in range(EPISODES):
                await episode(service, test, phase * EPISODES + number)
            await at_rest(test)
            looks.append(sizes(service.app, BESIDE))
            # The log holds a line back for a second, of real time, and shows the traceback with it.
            assert kept_frames(service.app, (*BESIDE, "reactive_kafka.observe.logs")) == []
        # What is made once, late, grows in one of the phases only.
        steps = [grown(before, after, EPISODES // 2) for before, after in pairwise(looks)]
        more = {
            label: count
            for label, count in steps[1].items()
            if label in steps[0] and label not in BOUNDED
        }
        assert more == {}
        await test.broker.close()


@pytest.mark.parametrize("episode", EPISODE_KINDS, ids=lambda one: one.__name__)
@in_virtual_time
async def test_no_timer_is_left_when_an_application_stops_right_after(episode: Episode) -> None:
    service, broker = Service(), make_broker()
    async with running(service.app, broker=broker) as test:
        await handled(service, test, "orders", b"good")
        await episode(service, test, 0)
    assert timers(asyncio.get_running_loop()).keys() <= LEFT_BEHIND.keys()
    await broker.close()
