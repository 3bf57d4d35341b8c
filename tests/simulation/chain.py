"""Chains from topic to handler to topic, under whatever goes wrong: two members, and faults at any
step.

A seed draws a chain that is exactly once, or at least once, and how its handler behaves. Then:
commits, writes and ends of transactions that fail, are lost or land late; rebalances, members that
expire or vanish; a broker that is away.

- C1: no position is committed past a record whose results are not in the topic.
- C2: in the end each record has its results: exactly once, as readers of what is committed see it,
  or at least once.
- C3: the results of a key are in the order of its records.
- C4: an exactly-once chain writes each dead letter once, and none for a record that has results.
- C5: the group's positions reach the ends.
- C6: an output that is refused makes a dead letter of the message that it names, and of no other.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka import App, Batch, Message, Record, TopicPartition
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.broker.memory.scripted_faults import Request
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp
from tests.app.helpers import make_broker, tp, until
from tests.simulation.loop import run_seeded
from tests.simulation.scenario import protocol_of

PARTITIONS, RECORDS, KEYS = 2, 40, 5
STEPS: tuple[Request, ...] = (
    "claim",
    "send",
    "add_group",
    "commit_in",
    "end",
    "commit",
    "committed",
    "partitions",
)
STORED = ("send", "commit_in", "end", "add_group", "claim", "commit")
CALM_S = 900.0
"""Within that all is handled, once nothing fails any more."""
LATE_S = 60.0
"""What is late comes by then."""
EXPECTED = (
    *(f"fault {step}" for step in STEPS),
    "late",
    "lost answer",
    "rebalance",
    "expired",
    "crash",
    "away",
    "raised",
    "dead letter",
    "aborted",
    "again",
    "duplicate",
    "refused output",
)
"""What must have happened in a run of many seeds."""


@dataclass
class Chain:
    """What a seed has drawn, and what came of it."""

    seed: int
    dice: random.Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    bites: Counter[str] = field(default_factory=Counter)
    broker: MemoryBroker = field(init=False)
    # Value -> its key.
    keys: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(f"chain {self.seed}")
        self.kind = dice.choice(("records", "yields", "batch"))
        self.is_exact = dice.random() < 0.7
        self.waits = dice.random() < 0.5
        self.raises = dice.choice((0.0, 0.1, 0.25))
        self.calls = Counter[bytes]()
        # The outputs of a batch name their messages, and some of them cannot be written.
        self.names_origins = self.kind == "batch" and not self.is_exact
        # With dice of its own, so that the other draws stay what they were.
        self.stale = random.Random(f"stale {self.seed}").choice(("send", "drop"))

    def is_refused(self, value: bytes) -> bool:
        """Whether the output of a record cannot be written."""
        return self.names_origins and int(value) % 11 == 5

    def results_of(self, value: bytes) -> list[bytes]:
        """What a handler makes of a record."""
        if self.kind == "yields":
            return [value, value + b"!"]
        if self.is_refused(value):
            return []
        return [] if self.kind == "records" and int(value) % 7 == 3 else [value]

    def read(self, topic: str) -> list[Any]:
        """What stands in a topic, as readers of what is committed see it."""
        partitions = self.broker.topics().get(topic, 0)
        return [
            one
            for number in range(partitions)
            for one in self.broker.committed_log(tp(number, topic))
        ]

    # the application

    def member(self) -> App:
        channel: dict[str, Any] = {
            "group_id": "billing",
            "group_protocol": protocol_of(self.seed),
            "auto_offset_reset": "earliest",
            "commit_interval": "1s",
            "concurrency": self.dice.choice((1, 2, 4)),
            "unprocessed_record_max_age": 0,
            "failure_strategy": "dead-letter-queue",
            "dead_letter_queue": {"topic": "dead"},
            "retry": {"max_attempts": 2},
            "batch_max_records": 5,
            "batch_max_wait": "100ms",
            "revoke_grace": "1s",
            "stale_results": self.stale,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
        }
        invoices: dict[str, Any] = {"wait_for_write": self.waits, "send_timeout": "5s"}
        if self.is_exact:
            invoices["transactional_id"] = "billing"
        app = App({"incoming": {"orders": channel}, "outgoing": {"invoices": invoices}})
        getattr(self, f"_{self.kind}")(app)
        return app

    async def _work(self, value: bytes) -> None:
        self.calls[value] += 1
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice((0.01, 0.5, 3.0)))
        if self.dice.random() < self.raises:
            self.bites["raised"] += 1
            raise ValueError("this time")

    def _batch(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(batch: Batch[bytes]) -> list[Record]:
            for message in batch:
                await self._work(message.payload)
            return [self._output(message) for message in batch]

    def _output(self, message: Message[bytes]) -> Record:
        value: Any = message.payload
        if self.is_refused(message.payload):
            self.bites["refused output"] += 1
            value = object()
        origin = message if self.names_origins else None
        return Record(value, key=message.key, origin=origin)

    def _yields(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Any:
            yield Record(message.payload, key=message.key)
            await self._work(message.payload)
            yield Record(message.payload + b"!", key=message.key)

    def _records(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Record | None:
            await self._work(message.payload)
            return (
                Record(message.payload, key=message.key)
                if self.results_of(message.payload)
                else None
            )

    # the run

    async def play(self, clock: FakeClock) -> None:
        self.broker = broker = make_broker(PARTITIONS)
        broker.create_topic("invoices", 2)
        for number in range(RECORDS):
            value, key = b"%d" % number, b"%d" % (number % KEYS)
            self.keys[value] = key
            broker.produce("orders", value, key=key, partition=number % KEYS % PARTITIONS)
        broker.watch_commits("billing", self._committed)
        async with TestApp(self.member(), broker=broker):
            async with TestApp(self.member(), broker=broker):
                for _ in range(self.dice.randint(1, 12)):
                    await asyncio.sleep(self.dice.choice((0.0, 0.05, 0.3, 1.0)))
                    await self._disturb()
            try:
                await until(self._is_over, CALM_S)
            except AssertionError:
                at = {str(one): where.offset for one, where in broker.committed("billing").items()}
                self.violations.append(f"C5, the group's positions do not reach the ends: {at}")
            await asyncio.sleep(LATE_S)
        self._judge()
        await broker.close()

    async def _disturb(self) -> None:
        """One thing that goes wrong."""
        dice, broker, what = self.dice, self.broker, self.dice.random()
        members = list(broker.members("billing"))
        if what < 0.5:
            step = dice.choice(STEPS)
            error = dice.choice((TransientBrokerError("away"), OutcomeUnknownError("no answer")))
            stored = step in STORED and dice.random() < 0.5
            self.bites[f"fault {step}"] += 1
            self.bites["lost answer"] += stored
            broker.fail_next(step, error, dice.randint(1, 2), stored=stored)
        elif what < 0.7:
            self.bites["late"] += 1
            broker.delay_next(
                dice.choice(STEPS), dice.choice((0.5, 8.0, 15.0)), answer=dice.random() < 0.5
            )
        elif what < 0.78:
            self.bites["rebalance"] += 1
            broker.rebalance("billing")
        elif what < 0.86 and members:
            self.bites["expired"] += 1
            broker.expire(
                "billing", dice.choice(members), notice_after_s=dice.choice((0.0, 2.0, 8.0))
            )
        elif what < 0.92 and members:
            self.bites["crash"] += 1
            broker.crash("billing", dice.choice(members), session_s=dice.choice((0.5, 6.0)))
        else:
            self.bites["away"] += 1
            broker.down = True
            await asyncio.sleep(dice.choice((0.2, 3.0, 12.0)))
            broker.down = False

    def _is_over(self) -> bool:
        reached = {one: where.offset for one, where in self.broker.committed("billing").items()}
        return all(reached.get(tp(at), 0) >= self.broker.end(tp(at)) for at in range(PARTITIONS))

    # what must be so

    def _committed(self, entry: CommitEntry) -> None:
        if self.is_exact:
            # Its results are committed at the same moment, and seen when older transactions have
            # ended.
            return
        written = {one.value for one in (*self.read("invoices"), *self.read("dead"))}
        for partition, position in entry.offsets.items():
            for record in self.broker.log(TopicPartition(*partition)):
                value = record.value or b""
                expected = [value] if self.is_refused(value) else self.results_of(value)
                missing = [one for one in expected if one not in written]
                if record.offset < position.offset and missing and value not in written:
                    self.violations.append(
                        f"C1, {partition} is committed up to {position.offset}: {missing} are missing"
                    )

    def _judge(self) -> None:
        results, dead = self.read("invoices"), Counter(one.value for one in self.read("dead"))
        found = Counter(one.value for one in results)
        for value in self.keys:
            self._judge_record(value, [found[one] for one in self.results_of(value)], dead[value])
            self._judge_origin(value, dead[value])
        strange = set(found).difference(
            one for value in self.keys for one in self.results_of(value)
        )
        if strange:
            self.violations.append(f"C2, nobody has made {strange}")
        for key in set(self.keys.values()):
            # At least once: a record whose dead letter was written, and not committed, is handled
            # again behind others.
            mine = [one.value or b"" for one in results if one.key == key]
            self._judge_order(key, [one for one in mine if not dead[one.rstrip(b"!")]])
        self.bites["dead letter"] += len(dead)
        self.bites["again"] += sum(times - 1 for times in self.calls.values())
        everything = [
            one
            for at in range(self.broker.topics()["invoices"])
            for one in self.broker.log(tp(at, "invoices"))
        ]
        self.bites["aborted"] += len(everything) - len(results)
        self.bites["duplicate"] += 0 if self.is_exact else len(results) - len(found)

    def _judge_record(self, value: bytes, times: list[int], dead: int) -> None:
        if self.is_exact:
            if dead > 1:
                self.violations.append(f"C4, {value!r} has {dead} dead letters")
            if dead and any(times):
                self.violations.append(f"C4, {value!r} has a dead letter and results")
            if not dead and any(one != 1 for one in times):
                self.violations.append(f"C2, the results of {value!r} stand there {times} times")
        elif not dead and not all(times):
            self.violations.append(f"C2, the results of {value!r} stand there {times} times")

    def _judge_origin(self, value: bytes, dead: int) -> None:
        if self.is_refused(value) and not dead:
            self.violations.append(f"C6, {value!r} has no dead letter, and its output was refused")
        if self.names_origins and not self.raises and dead and not self.is_refused(value):
            self.violations.append(f"C6, {value!r} has the dead letter of a neighbour")

    def _judge_order(self, key: bytes, values: list[bytes]) -> None:
        first = list(dict.fromkeys(int(value.rstrip(b"!")) for value in values))
        if self.is_exact and [int(value.rstrip(b"!")) for value in values] != sorted(
            int(value.rstrip(b"!")) for value in values
        ):
            self.violations.append(f"C3, the results of key {key!r} are out of order: {values}")
        if first != sorted(first):
            self.violations.append(f"C3, the results of key {key!r} are out of order: {first}")


def run_chain(seed: int) -> Chain:
    """Play the chain of a seed."""
    chain = Chain(seed)
    run_seeded(chain.play, seed)
    return chain
