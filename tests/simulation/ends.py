"""Runs that end by themselves, and ranges, under whatever goes wrong meanwhile.

A seed draws logs with gaps, what is read of them (the group's share, partitions by name, a whole
topic, ranges), how handlers behave, and faults: commits that fail, are lost or late, rebalances,
members that expire, a broker that is away; and records are written all the while.

- E1: each record that was there at the start, and is to be read, is handled, or has its dead
  letter.
- E2: no record outside of the ranges is handled.
- E3: no position is committed past a record that is not settled.
- E4: no position is committed behind a hole between ranges.
- E5: in the end the positions are where the reading ended.
- E6: every application comes to its end, with exit code 0, also where another channel comes first
  and gets more and more records.
- E7: what that channel has at the start is handled before.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reactive_kafka import App, Batch, Message, TopicPartition
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker
from tests.app.helpers import make_broker, tp
from tests.simulation.loop import run_seeded
from tests.simulation.scenario import protocol_of

PARTITIONS, MOST = 3, 40
GROUP, LETTERS, RETRIES = "billing", "dead-letter-topic-orders", "orders_retry_500"
KINDS = ("group", "named", "whole", "ranges", "ranges without a group", "ranges of times")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
"""The time of offset 0. Each offset is a second later."""
AFTER_SHARE = 0.2
CALM_S = 600.0
"""Within that every run has come to its end."""
FIRSTS = 5
"""Records of the channel that comes first, at the start."""
FAULTS = ("commit-fails", "commit-lost", "commit-late", "away", "rebalance", "expire")
EXPECTED = (
    *KINDS,
    *FAULTS,
    "later",
    "failed once",
    "dead letter",
    "retried",
    "ignored",
    "hole",
    "beyond the end",
    "after",
)
"""What must have happened in a run of many seeds."""


def _time(offset: int) -> str:
    """The time of a record, as users write it."""
    return (NOON + timedelta(seconds=offset)).isoformat()


@dataclass
class Ends:
    """What a seed has drawn, and what came of it."""

    seed: int
    dice: random.Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    bites: Counter[str] = field(default_factory=Counter)
    broker: MemoryBroker = field(init=False)
    # Partition -> its ranges.
    pairs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    # Partition and offset.
    wanted: set[tuple[int, int]] = field(default_factory=set)
    # Partition -> end of its log at the start.
    ends: dict[int, int] = field(default_factory=dict)
    # Values whose handlers always raise.
    bad: set[bytes] = field(default_factory=set)
    flaky: set[bytes] = field(default_factory=set)
    handled: Counter[tuple[int, int]] = field(default_factory=Counter)
    settled: set[tuple[int, int]] = field(default_factory=set)
    are_over: bool = False

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(f"ends {self.seed}")
        self.kind = dice.choice(KINDS)
        self.strategy = dice.choice(("ignore", "dead-letter-queue", "delayed-retry-topic"))
        if self.kind == "ranges without a group" and self.strategy == "delayed-retry-topic":
            self.strategy = "ignore"
        self.is_batch = dice.random() < 0.3
        self.members = 2 if self.kind == "group" and dice.random() < 0.5 else 1
        # Another channel comes first, whose topic gets more and more records. Of its own dice, so
        # that the other seeds stay what they were.
        is_drawn = random.Random(f"after {self.seed}").random() < AFTER_SHARE
        self.comes_after = is_drawn and self.members == 1
        self.firsts = 0

    # what is there

    def fill(self) -> None:
        """Write what is there at the start, with gaps, and choose what is read of it."""
        dice, broker = self.dice, self.broker
        broker.create_topic("orders", PARTITIONS)
        for partition in range(PARTITIONS):
            # A range of times needs two records that are there.
            amounts = (10, MOST) if self.kind == "ranges of times" else (0, 1, 10, MOST)
            for _ in range(dice.choice(amounts)):
                self.write(partition)
                if dice.random() < 0.05:
                    broker.append_markers(tp(partition), dice.choice((1, 3)))
            there = {record.offset for record in broker.log(tp(partition))}
            broker.compact(tp(partition), {offset for offset in there if dice.random() < 0.15})
            self.ends[partition] = broker.end(tp(partition))
        for partition in range(PARTITIONS):
            if self.kind.startswith("ranges") and (partition == 0 or dice.random() < 0.7):
                self.pairs[partition] = self._ranges(partition)
            offsets = {record.offset for record in broker.log(tp(partition))}
            self.wanted |= {(partition, one) for one in offsets if self.reads(partition, one)}

    def _ranges(self, partition: int) -> list[tuple[int, int]]:
        end = self.ends[partition]
        if self.kind == "ranges of times":
            there = [record.offset for record in self.broker.log(tp(partition))]
            first, last = sorted(self.dice.sample(there, k=2))
            return [(first, last)]
        bounds = sorted(
            self.dice.sample(range(max(end, 8) + 12), k=2 * self.dice.choice((1, 1, 2, 3)))
        )
        pairs = list(zip(bounds[::2], bounds[1::2], strict=True))
        self.bites["hole"] += len(pairs) > 1
        self.bites["beyond the end"] += pairs[-1][1] > end
        return pairs

    def reads(self, partition: int, offset: int) -> bool:
        if not self.kind.startswith("ranges"):
            return True
        return any(start <= offset < until for start, until in self.pairs.get(partition, ()))

    def write(self, partition: int) -> None:
        value = b"%d-%d" % (partition, self.broker.end(tp(partition)))
        share = self.dice.random()
        (self.bad if share < 0.06 else self.flaky if share < 0.15 else set()).add(value)
        at = NOON + timedelta(seconds=self.broker.end(tp(partition)))
        self.broker.produce(
            "orders", value, partition=partition, timestamp_ms=int(at.timestamp() * 1000)
        )

    # the applications

    def application(self) -> App:
        dice = self.dice
        channel: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "commit_interval": dice.choice(("200ms", "3s", "1h")),
            "concurrency": dice.choice((1, 4)),
            "ordering": dice.choice(("partition", "unordered")),
            "max_in_flight": dice.choice((4, 20, 1000)),
            "unprocessed_record_max_age": 0,
            "failure_strategy": self.strategy,
            "retry": {"max_attempts": dice.choice((1, 2)), "backoff": "100ms"},
            "batch_max_records": 3,
            "batch_max_wait": dice.choice(("100ms", "1h")),
            "revoke_grace": "2s",
            "max_uncommitted": 100_000,
            "drain_timeout": "60s",
        }
        if self.strategy == "delayed-retry-topic":
            channel["delayed_retry"] = {"topics": [RETRIES], "max_retries": 2}
        if self.is_batch:
            channel["max_in_flight"] = 100
        if self.kind != "ranges without a group":
            channel["group_id"] = GROUP
        channel["group_protocol"] = protocol_of(self.seed)
        if self.kind == "named":
            channel["assign"] = [f"orders:{number}" for number in range(PARTITIONS)]
        elif self.kind == "whole":
            channel["assign"] = ["orders:*"]
        elif self.kind == "ranges of times":
            channel["assign"] = [
                f"orders:{partition}@{_time(start)}..{_time(until)}"
                for partition, its in self.pairs.items()
                for start, until in its
            ]
        elif self.kind.startswith("ranges"):
            channel["assign"] = [
                f"orders:{partition}:{start}..{until}"
                for partition, its in self.pairs.items()
                for start, until in its
            ]
        incoming = {"orders": channel}
        if self.comes_after:
            channel["after"] = ["first"]
            incoming["first"] = {
                "group_id": "first",
                "auto_offset_reset": "earliest",
                "commit_interval": "200ms",
            }
        app = App({"incoming": incoming, "http": {"enabled": False}})
        app._connector, app._clock = self.broker.connector(), self.broker._state.clock

        async def single(message: Message[bytes]) -> None:
            await self._work(message)

        async def batch(messages: Batch[bytes]) -> None:
            for message in messages:
                try:
                    await self._work(message)
                except ValueError as error:
                    message.nack(error)

        app.incoming("orders")(batch if self.is_batch else single)
        if self.comes_after:
            app.incoming("first")(self._first)
        return app

    async def _first(self, message: Message[bytes]) -> None:
        self.firsts += 1
        if self.handled and self.firsts > FIRSTS:
            self.bites["after"] += 1
        await asyncio.sleep(0.1)

    async def _write_firsts(self) -> None:
        """Write to the topic of the other channel, faster than that handles it."""
        while not self.are_over:
            self.broker.produce("first", b"")
            await asyncio.sleep(0.05)

    async def _work(self, message: Message[bytes]) -> None:
        # Nobody waits for what an outage hides.
        if self.comes_after and not self.bites["away"] and self.firsts < FIRSTS:
            self.violations.append(f"E7, {message.payload!r} begins after {self.firsts} firsts")
        value = message.payload
        partition, offset = map(int, value.split(b"-"))
        if message.topic != "orders":
            self.bites["retried"] += 1
        elif not self.reads(partition, offset):
            self.violations.append(f"E2, {value!r} is outside of {self.pairs}")
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice((0.01, 0.3, 1.0)))
        self.handled[partition, offset] += 1
        if value in self.bad:
            raise ValueError("never")
        if value in self.flaky and self.handled[partition, offset] == 1:
            self.bites["failed once"] += 1
            raise ValueError("not yet")
        self.settled.add((partition, offset))

    # the run

    async def play(self, clock: FakeClock) -> None:
        self.broker = make_broker(PARTITIONS)
        self.fill()
        self.broker.watch_commits(GROUP, self._committed)
        disturbing = asyncio.create_task(self._disturb())
        writing = None
        if self.comes_after:
            self.broker.create_topic("first", 1)
            for _ in range(FIRSTS):
                self.broker.produce("first", b"")
            writing = asyncio.create_task(self._write_firsts())
        try:
            codes = await asyncio.gather(*(self._run(number) for number in range(self.members)))
        finally:
            self.are_over = True
            await disturbing
            if writing is not None:
                await writing
        if any(codes):
            self.violations.append(f"E6, exit codes {codes}")
        self.judge()
        await self.broker.close()

    async def _run(self, number: int) -> int:
        app = self.application()
        await asyncio.sleep(number * self.dice.choice((0.0, 2.0)))
        run = app._new_run(until_end=True)
        await app._start(run)
        try:
            await asyncio.wait_for(run.wait_asked(), CALM_S)
        except TimeoutError:
            self.violations.append(f"E6, no end within {CALM_S:g} s: {app.health().ready.checks}")
        await app.stop()
        return run.exit_code()

    async def _disturb(self) -> None:
        broker, dice = self.broker, self.dice
        for _ in range(dice.choice((0, 2, 5))):
            await asyncio.sleep(dice.choice((0.0, 0.3, 2.0)))
            if self.are_over:
                break
            kind = dice.choice(FAULTS)
            members = sorted(broker.members(GROUP))
            if kind in ("rebalance", "expire") and not members:
                continue
            self.bites[kind] += 1
            if kind == "commit-fails":
                broker.fail_next("commit", TransientBrokerError("no"), dice.choice((1, 3)))
            elif kind == "commit-lost":
                broker.fail_next(
                    "commit", OutcomeUnknownError("who knows"), stored=dice.random() < 0.5
                )
            elif kind == "commit-late":
                broker.delay_next("commit", dice.choice((1.0, 15.0)))
            elif kind == "away":
                broker.down = True
                await asyncio.sleep(dice.choice((0.5, 5.0, 20.0)))
                broker.down = False
            elif kind == "rebalance":
                broker.rebalance(GROUP)
            else:
                broker.expire(GROUP, dice.choice(members))
        for _ in range(dice.choice((0, 5, 30))):
            if self.are_over:
                break
            self.bites["later"] += 1
            self.write(dice.randrange(PARTITIONS))
            await asyncio.sleep(dice.choice((0.0, 0.2)))

    # the verdict

    def _committed(self, entry: CommitEntry) -> None:
        for partition, stored in entry.offsets.items():
            if partition.topic != "orders":
                continue
            number = partition.partition
            if self.pairs and stored.offset > self.first_end(number):
                self.violations.append(
                    f"E4, {partition} at {stored.offset}, and its ranges are {self.pairs[number]}"
                )
            for record in self.broker.log(partition):
                if record.offset < stored.offset and self.reads(number, record.offset):
                    self._check_settled(number, record.offset, record.value or b"", stored.offset)

    def _check_settled(self, partition: int, offset: int, value: bytes, position: int) -> None:
        if (partition, offset) in self.settled or self._is_elsewhere(value):
            return
        if self.strategy == "ignore" and self.handled[partition, offset]:
            return
        self.violations.append(f"E3, position {position} of partition {partition} passes {offset}")

    def _is_elsewhere(self, value: bytes) -> bool:
        """Whether a record that has failed has its copy."""
        topics = self.broker.topics()
        return any(
            record.value == value
            for topic in (LETTERS, RETRIES)
            for number in range(topics.get(topic, 0))
            for record in self.broker.log(TopicPartition(topic, number))
        )

    def first_end(self, partition: int) -> int:
        """The end of the first ranges of a partition that touch each other."""
        (_, end), *others = self.pairs[partition]
        for start, until in others:
            if start != end:
                break
            end = until
        return end

    def judge(self) -> None:
        """Look at what there is in the end."""
        values = {
            (number, record.offset): record.value or b""
            for number in range(PARTITIONS)
            for record in self.broker.log(tp(number))
        }
        for place in sorted(self.wanted - self.settled):
            value = values[place]
            has_letter = any(
                record.value == value
                for number in range(self.broker.topics().get(LETTERS, 0))
                for record in self.broker.log(tp(number, LETTERS))
            )
            self.bites["dead letter"] += has_letter
            self.bites["ignored"] += self.strategy == "ignore"
            if not has_letter and not (self.strategy == "ignore" and self.handled[place]):
                self.violations.append(f"E1, {place} is not handled: {self.kind}, {self.strategy}")
        self.bites[self.kind] += 1
        if self.kind == "ranges without a group":
            return
        committed = self.broker.committed(GROUP)
        stored = {
            one.partition: kept.offset for one, kept in committed.items() if one.topic == "orders"
        }
        for partition, end in self.ends.items():
            at = stored.get(partition, 0)
            if self.pairs:
                its = self.pairs.get(partition, [])
                least = min(end, self.first_end(partition)) if its and end > its[0][0] else 0
            else:
                least = end
            if at < least:
                self.violations.append(
                    f"E5, partition {partition} is at {at}, not {least}: {self.kind} {self.pairs}"
                )


def run_ends(seed: int) -> Ends:
    """Play a seed to its end."""
    ends = Ends(seed)
    run_seeded(ends.play, seed)
    return ends
