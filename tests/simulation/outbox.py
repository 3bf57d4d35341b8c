"""An outbox under whatever goes wrong: two members, faults of the store and of the brokers.

A seed draws how the handler sends. Then: transactions, reads and deletes of the store that fail,
lose their answer or land late; writes that fail or are stored without an answer; rebalances,
members that expire or vanish; brokers or a store that are away.

- B1: the events in Kafka are those of the transactions that are stored, each with one id.
- B2: a record has one stored transaction, or a dead letter. If its letter was not settled before
  its partition moved on, it may have both; then the letter came first.
- B3: what a reader sees who drops repeated ids is in the order of the records.
- B4: in the end the table is empty, and the positions reach the ends.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.broker.memory.scripted_faults import Request
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp
from tests.app.checkpoints import MemoryStore, Outcome, Rows
from tests.app.helpers import make_broker, tp, until
from tests.simulation.loop import run_seeded
from tests.simulation.scenario import protocol_of

PARTITIONS, RECORDS, KEYS = 2, 40, 5
MOST_ROWS = 12
STEPS: tuple[Request, ...] = ("send", "commit", "committed", "partitions")
CALLS = ("read", "write", "enter", "exit")
OUTCOMES: tuple[Outcome, ...] = ("away", "lost", "late")
CALM_S = 900.0
"""Within that all is handled, once nothing fails any more."""
EXPECTED = (
    *(f"fault {step}" for step in STEPS),
    *(f"store {call} {outcome}" for call in CALLS for outcome in OUTCOMES),
    "rebalance",
    "expired",
    "crash",
    "away",
    "store away",
    "raised",
    "raised behind the block",
    "dead letter",
    "again",
    "duplicate",
    "full",
)
"""What must have happened in a run of many seeds."""


class SeenEvent(NamedTuple):
    """One record of the topic of events."""

    id: str
    # Which call of a handler has made it, and which of its events it is.
    attempt: int
    number: int
    value: int
    # When it was made.
    timestamp: int


@dataclass
class OutboxRun:
    """What a seed has drawn, and what came of it."""

    seed: int
    dice: random.Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    bites: Counter[str] = field(default_factory=Counter)
    broker: MemoryBroker = field(init=False)
    rows: Rows = field(default_factory=Rows)

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(f"outbox {self.seed}")
        self.kind = dice.choice(("sends", "returns", "yields", "batch", "each of a batch"))
        self.raises = dice.choice((0.0, 0.1, 0.25))
        self.attempts = count()
        self.calls = Counter[int]()
        self._names = count()
        # Attempt -> how many events it has.
        self.made = dict[int, int]()

    # the application

    def member(self) -> App:
        channel: dict[str, Any] = {
            "group_id": "billing",
            "group_protocol": protocol_of(self.seed),
            "auto_offset_reset": "earliest",
            "commit_strategy": "checkpoint",
            "commit_interval": "1s",
            "checkpoint": {"store": "memory://unused", "kafka_commit_interval": "1s"},
            "concurrency": self.dice.choice((1, 2, 4)),
            "unprocessed_record_max_age": 0,
            "failure_strategy": "dead-letter-queue",
            "dead_letter_queue": {"topic": "dead"},
            "retry": {"max_attempts": 2},
            "batch_max_records": 5,
            "batch_max_wait": "100ms",
            "revoke_grace": "1s",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
        }
        events = {"outbox": True, "outbox_max_rows": MOST_ROWS, "send_timeout": "5s"}
        app = App({"incoming": {"orders": channel}, "outgoing": {"events": events}})
        {
            "sends": self._sends,
            "returns": self._returns,
            "yields": self._yields,
            "batch": self._batch,
            "each of a batch": self._each_of_a_batch,
        }[self.kind](app)
        store = MemoryStore(self.rows, who=f"member {next(self._names)}")
        app._stores = lambda _: store
        return app

    async def _work(self, payload: bytes) -> None:
        self.calls[int(payload)] += 1
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice((0.01, 0.5, 3.0)))
        if self.dice.random() < self.raises:
            self.bites["raised"] += 1
            raise ValueError("this time")

    def _behind(self) -> None:
        """What follows the block of a transaction."""
        if self.dice.random() < self.raises / 2:
            self.bites["raised behind the block"] += 1
            raise ValueError("this time")

    def _attempt(self, events: int) -> int:
        attempt = next(self.attempts)
        self.made[attempt] = events
        return attempt

    @staticmethod
    def _event(message: Message[bytes], attempt: int, number: int) -> Record:
        return Record(b"%d %d %b" % (attempt, number, message.payload), key=message.key)

    def _sends(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> None:
            attempt = self._attempt(2)
            async with message.transaction() as tx:
                tx[attempt] = [message.payload]
                await tx.send(self._event(message, attempt, 0))
                await self._work(message.payload)
                await tx.send(self._event(message, attempt, 1))
            self._behind()

    def _returns(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> list[Record]:
            attempt = self._attempt(3)
            async with message.transaction() as tx:
                tx[attempt] = [message.payload]
                await tx.send(self._event(message, attempt, 0))
            await self._work(message.payload)
            self._behind()
            return [self._event(message, attempt, 1), self._event(message, attempt, 2)]

    def _yields(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(message: Message[bytes]) -> AsyncIterator[Record]:
            attempt = self._attempt(3)
            yield self._event(message, attempt, 0)
            async with message.transaction() as tx:
                tx[attempt] = [message.payload]
                yield self._event(message, attempt, 1)
                await self._work(message.payload)
            yield self._event(message, attempt, 2)
            self._behind()

    def _batch(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(batch: Batch[bytes]) -> list[Record]:
            attempt = self._attempt(len(batch))
            async with batch.transaction() as tx:
                tx[attempt] = batch.payloads
                for message in batch:
                    await self._work(message.payload)
            self._behind()
            return [self._event(message, attempt, at) for at, message in enumerate(batch)]

    def _each_of_a_batch(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("events")
        async def handler(batch: Batch[bytes]) -> None:
            for message in batch:
                attempt = self._attempt(1)
                async with message.transaction() as tx:
                    tx[attempt] = [message.payload]
                    await self._work(message.payload)
                    await tx.send(self._event(message, attempt, 0))

    # the run

    async def play(self, clock: FakeClock) -> None:
        self.broker = broker = make_broker(PARTITIONS)
        broker.create_topic("events", 2)
        for number in range(RECORDS):
            key = number % KEYS
            broker.produce("orders", b"%d" % number, key=b"%d" % key, partition=key % PARTITIONS)
        async with TestApp(self.member(), broker=broker):
            async with TestApp(self.member(), broker=broker):
                for _ in range(self.dice.randint(1, 14)):
                    await asyncio.sleep(self.dice.choice((0.0, 0.05, 0.3, 1.0)))
                    await self._disturb()
                    self.bites["full"] += len(self.rows.events) >= MOST_ROWS
            try:
                await until(self._is_over, CALM_S)
            except AssertionError:
                left = [stored.event.record.value for _, stored in self.rows.events]
                self.violations.append(f"B4, it does not come to its end; rows: {left}")
            # What is late comes now, and has no effect, or is relayed as anything else.
            self.rows.land()
            await until(lambda: not self.rows.events, CALM_S)
            await asyncio.sleep(30)
        self._judge()
        await broker.close()

    async def _disturb(self) -> None:
        """One thing that goes wrong."""
        dice, broker, what = self.dice, self.broker, self.dice.random()
        members = list(broker.members("billing"))
        if what < 0.4:
            call, outcome = dice.choice(CALLS), dice.choice(OUTCOMES)
            self.bites[f"store {call} {outcome}"] += 1
            self.rows.faults.script(call, *([outcome] * dice.randint(1, 2)))  # type: ignore[arg-type]
        elif what < 0.45:
            self.rows.land()
        elif what < 0.65:
            step = dice.choice(STEPS)
            error = dice.choice((TransientBrokerError("away"), OutcomeUnknownError("no answer")))
            self.bites[f"fault {step}"] += 1
            stored = step == "send" and dice.random() < 0.5
            broker.fail_next(step, error, dice.randint(1, 3), stored=stored)
        elif what < 0.72:
            self.bites["rebalance"] += 1
            broker.rebalance("billing")
        elif what < 0.8 and members:
            self.bites["expired"] += 1
            broker.expire(
                "billing", dice.choice(members), notice_after_s=dice.choice((0.0, 2.0, 8.0))
            )
        elif what < 0.86 and members:
            self.bites["crash"] += 1
            broker.crash("billing", dice.choice(members), session_s=dice.choice((0.5, 6.0)))
        elif what < 0.92:
            self.bites["store away"] += 1
            self.rows.faults.away = True
            await asyncio.sleep(dice.choice((0.2, 3.0, 12.0)))
            self.rows.faults.away = False
        else:
            self.bites["away"] += 1
            broker.topic_away("events")
            await asyncio.sleep(dice.choice((0.2, 3.0, 12.0, 60.0)))
            broker.topic_back("events")

    def _is_over(self) -> bool:
        if self.rows.events:
            return False
        for number in range(PARTITIONS):
            row = self.rows.row("billing", tp(number))
            if row is None or (row.position or 0) < self.broker.end(tp(number)):
                return False
        return True

    # what must be so

    def events(self) -> list[list[SeenEvent]]:
        """The events by partition, as they were written."""
        return [
            [self._seen(record) for record in self.broker.log(tp(number, "events"))]
            for number in range(2)
        ]

    @staticmethod
    def _seen(record: Any) -> SeenEvent:
        attempt, number, value = map(int, record.value.split())
        event_id = dict(record.headers)["reactive-kafka-event-id"].decode()
        return SeenEvent(event_id, attempt, number, value, record.timestamp)

    def _judge(self) -> None:
        by_partition = self.events()
        everything = [event for events in by_partition for event in events]
        by_id = {event.id: event for event in everything}
        found = Counter((event.attempt, event.number) for event in by_id.values())
        stored: dict[int, list[bytes]] = self.rows.data
        wanted = {(attempt, at) for attempt in stored for at in range(self.made[attempt])}
        if set(found) != wanted:
            self.violations.append(
                f"B1, missing {wanted - set(found)}, unknown {set(found) - wanted}"
            )
        if any(times > 1 for times in found.values()):
            self.violations.append(f"B1, events with several ids: {found}")
        handled = Counter(int(value) for values in stored.values() for value in values)
        dead = {
            int(record.value or b""): record.timestamp
            for number in range(self.broker.topics().get("dead", 0))
            for record in self.broker.log(tp(number, "dead"))
        }
        for value in range(RECORDS):
            if handled[value] > 1 or not (handled[value] or value in dead):
                self.violations.append(f"B2, {value} is stored {handled[value]} times")
        for event in everything:
            if event.value in dead and dead[event.value] > event.timestamp:
                self.violations.append(f"B2, {event.value} has a dead letter behind its event")
        for events in by_partition:
            self._judge_order(events)
        self.bites["dead letter"] += len(dead)
        self.bites["again"] += sum(times - 1 for times in self.calls.values())
        self.bites["duplicate"] += len(everything) - len(by_id)

    def _judge_order(self, events: Sequence[SeenEvent]) -> None:
        seen = set[str]()
        by_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for event in events:
            if event.id not in seen:
                seen.add(event.id)
                by_key[event.value % KEYS].append((event.value, event.number))
        for key, order in by_key.items():
            if order != sorted(order):
                self.violations.append(f"B3, the events of key {key} are out of order: {order}")


def run_outbox(seed: int) -> OutboxRun:
    """Play the run of a seed."""
    run = OutboxRun(seed)
    run_seeded(run.play, seed)
    return run
