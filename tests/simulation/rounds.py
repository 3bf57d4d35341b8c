"""Rounds of everything that may happen to a channel, with a rest after each: nothing may grow from
rest to rest.

A seed draws an application and what its rounds have: records that are handled, fail, or are
filtered; calls of the application that are cancelled at a random step (a send, an ack, a commit, a
seek, a transaction); seeks, pauses, rebalances, clients that are replaced, channels that are
stopped and started, outages, lost answers.

- R1: after each round everything comes to rest: all records are settled and committed, and nothing
  hangs.
- R2: no collection grows from rest to rest, and no kind of object.
- R3: no collection holds a task that has ended.
- R4: no timer outlives its owner: none after the stop, and no more of them from rest to rest.
- R5: each record is handled, or has its dead letter, however its calls were cancelled.
- R6: no position is committed past a record that is not settled.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka import App, Batch, Emitter, Message, Record
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, Rows
from reactive_kafka.errors import OutcomeUnknownError, ReactiveKafkaError, TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker
from tests.app.helpers import Recorder, make_broker, now, tp
from tests.simulation.held import grows, held, timers
from tests.simulation.loop import run_seeded
from tests.simulation.scenario import protocol_of

PARTITIONS, ROUNDS, EACH = 2, 9, 6
GROUP, LETTERS, RETRIES = "billing", "dead", "orders_retry_500"
REST_S = 180.0
"""Within that everything comes to rest."""
SHAPES = (
    "plain",
    "manual",
    "output",
    "yields",
    "emitter",
    "batch",
    "exactly",
    "checkpoint",
    "rows",
    "iterate",
)
HAPPENS = (
    "cancelled send",
    "cancelled commit",
    "cancelled seek",
    "cancelled committed",
    "seek",
    "pause",
    "rebalance",
    "replaced",
    "stop-start",
    "outage",
    "lost commit",
    "lost send",
    "lost end",
    "expire",
    "away store",
    "slow send",
    "look",
    "stall",
    "leader",
)
EXPECTED = (*SHAPES, *HAPPENS, "letter", "cancelled handler call")
"""What must have happened in a run of many seeds."""


@dataclass
class Rounds:
    """What a seed has drawn, and what came of it."""

    seed: int
    dice: random.Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    bites: Counter[str] = field(default_factory=Counter)
    recorder: Recorder = field(default_factory=Recorder)
    broker: MemoryBroker = field(init=False)
    rows: Rows = field(default_factory=Rows)
    produced: dict[tuple[int, int], bytes] = field(default_factory=dict)
    handled: set[bytes] = field(default_factory=set)
    calls: Counter[bytes] = field(default_factory=Counter)
    own: list[asyncio.Task[Any]] = field(default_factory=list)
    sizes: list[Counter[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(f"rounds {self.seed}")
        self.shape = dice.choice(SHAPES)
        happens = [one for one in HAPPENS if self._can(one)]
        self.happens = dice.sample(happens, k=dice.choice((1, 1, 2, 3)))
        self.ordering = dice.choice(("partition", "key", "unordered"))
        # Of the outgoing channel.
        self.room = dice.choice((1, 2, 1000))
        self.fails = self.shape not in ("exactly",) and dice.random() < 0.6
        self.strategy = dice.choice(("dead-letter-queue", "ignore", "delayed-retry-topic"))
        self.store = MemoryStore(self.rows)

    def _can(self, what: str) -> bool:
        if what in ("lost end",):
            return self.shape == "exactly"
        if what == "away store":
            return self.shape in ("checkpoint", "rows")
        return not (
            what in ("cancelled send", "slow send", "lost send") and self.shape not in self.senders
        )

    senders = ("output", "yields", "emitter", "batch", "exactly")

    def __str__(self) -> str:
        fails = f", {self.strategy}" if self.fails else ""
        return f"seed {self.seed}: {self.shape}, {self.ordering}, room {self.room}{fails}: {', '.join(self.happens)}"

    # -- the application

    def application(self) -> App:
        dice = self.dice
        orders: dict[str, Any] = {
            "group_id": GROUP,
            "group_protocol": protocol_of(self.seed),
            "auto_offset_reset": "earliest",
            "commit_interval": dice.choice(("200ms", "1s")),
            "ordering": self.ordering,
            "concurrency": dice.choice((1, 4)),
            "max_in_flight": dice.choice((12, 1000)),
            "unprocessed_record_max_age": 0,
            "drain_timeout": "2s",
            "revoke_grace": "1s",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
            "failure_strategy": self.strategy,
        }
        if self.strategy == "dead-letter-queue":
            orders["dead_letter_queue"] = {"topic": LETTERS}
        elif self.strategy == "delayed-retry-topic":
            orders["delayed_retry"] = {"topics": [RETRIES], "max_retries": 1}
        invoices: dict[str, Any] = {
            "wait_for_write": dice.random() < 0.5,
            "max_in_flight": self.room,
        }
        invoices["send_timeout"] = "600s"
        if self.shape == "batch":
            orders |= {"ordering": "partition", "batch_max_records": 3, "batch_max_wait": "50ms"}
        elif self.shape == "manual":
            orders["ack"] = "manual"
        elif self.shape == "exactly":
            orders |= {"ordering": "partition", "failure_strategy": "ignore"}
            for name in ("dead_letter_queue", "delayed_retry"):
                orders.pop(name, None)
            invoices = {"transactional_id": "billing"}
        elif self.shape in ("checkpoint", "rows"):
            orders |= {"commit_strategy": "checkpoint", "checkpoint": {"store": "memory://unused"}}
            if self.shape == "rows":
                orders["ordering"] = "partition"
        elif self.shape == "iterate":
            orders |= {"concurrency": 1, "value_deserializer": "bytes"}
        tables: dict[str, Any] = {"incoming": {"orders": orders}, "http": {"enabled": False}}
        if self.shape in self.senders:
            tables["outgoing"] = {"invoices": invoices}
        app = App(tables, observer=self.recorder)
        app._connector, app._clock = self.broker.connector(), self.broker._state.clock
        app._stores = lambda _: self.store
        if self.shape != "iterate":
            getattr(self, f"_{self.shape}", self._plain)(app)
        return app

    async def _work(self, message: Message[bytes]) -> None:
        value = message.payload
        self.calls[value] += 1
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice((0.0, 0.01, 0.2)))
        if value.startswith(b"bad"):
            raise ValueError("bad")
        self.handled.add(value)

    def _plain(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)

    _checkpoint = _plain

    def _manual(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)
            if self.dice.random() < 0.3:
                await self._cancelled(self._settled(message))
                self.bites["cancelled handler call"] += 1
            message.ack()

    async def _settled(self, message: Message[bytes]) -> None:
        message.ack()
        await message.committed()

    def _output(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Record:
            await self._work(message)
            return Record(message.payload, key=message.key)

    _exactly = _output

    def _yields(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Any:
            yield Record(message.payload, key=message.key)
            await self._work(message)
            yield Record(message.payload, key=message.key)

    def _emitter(self, app: App) -> None:
        emitter = app.emitter("invoices")

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)
            if self.dice.random() < 0.4:
                await self._cancelled(emitter.send(Record(message.payload, key=message.key)))
                self.bites["cancelled handler call"] += 1
            await emitter.send(Record(message.payload, key=message.key))

    def _batch(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(batch: Batch[bytes]) -> list[Record]:
            for message in batch:
                try:
                    await self._work(message)
                except ValueError as error:
                    message.nack(error)
            return [Record(message.payload, key=message.key) for message in batch]

    def _rows(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            if self.dice.random() < 0.3:
                await self._cancelled(self._transaction(message))
                self.bites["cancelled handler call"] += 1
                if message.payload in self.rows.data:
                    return
            await self._transaction(message)

    async def _transaction(self, message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            await self._work(message)
            connection[message.payload] = 1

    async def _iterated(self, app: App) -> None:
        async for message in app.channel("orders"):
            try:
                await self._work(message)
            except ValueError as error:
                message.nack(error)
            else:
                message.ack()

    async def _cancelled(self, call: Awaitable[object]) -> None:
        """Begin a call, and cancel it after a random number of turns of the loop."""
        task = asyncio.ensure_future(call)
        for _ in range(self.dice.choice((0, 1, 2, 3, 5, 8, 13, 21))):
            await asyncio.sleep(0)
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.choice((0.01, 0.3)))
        task.cancel()
        with suppress(asyncio.CancelledError, ReactiveKafkaError):
            await task

    # -- the run

    async def play(self, clock: FakeClock) -> None:
        self.broker = make_broker(PARTITIONS)
        for topic in ("orders", "invoices", LETTERS, RETRIES):
            self.broker.create_topic(topic, PARTITIONS)
        self.broker.watch_commits(GROUP, self._committed)
        app = self.application()
        await app.start()
        emitter = app.emitter("invoices") if self.shape == "emitter" else None
        loop = asyncio.get_running_loop()
        for number in range(ROUNDS):
            if self.shape == "iterate" and (not self.own or self.own[-1].done()):
                self.own.append(asyncio.create_task(self._until_closed(app)))
            for what in self.happens:
                self.bites[what] += 1
                self._produce(number, what)
                await getattr(self, "_" + what.replace(" ", "_").replace("-", "_"))(app, emitter)
                if self.shape == "iterate" and self.own[-1].done():
                    self.own.append(asyncio.create_task(self._until_closed(app)))
            self._produce(number, "last")
            if not await self._rests(app):
                break
            self._measure(app, loop)
        self.violations += (
            [f"R2, {text}" for text in grows(self.sizes)] if len(self.sizes) == ROUNDS else []
        )
        await app.stop()
        for task in self.own:
            task.cancel()
        await asyncio.gather(*self.own, return_exceptions=True)
        if left := timers(loop):
            self.violations.append(f"R4, timers outlive the application: {dict(left)}")
        await self.broker.close()
        tasks = [one.get_name() for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        if tasks:
            self.violations.append(f"R4, tasks outlive the application: {tasks}")
        self.bites[self.shape] += 1
        self.bites["letter"] += sum(
            self.broker.end(tp(number, LETTERS)) for number in range(PARTITIONS)
        )

    def _measure(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        found = held(app._run)
        set_now = Counter({f"timer {name}": count for name, count in timers(loop).items()})
        self.sizes.append(found.sizes + set_now)
        self.violations += [
            f"R3, {name} holds a task that has ended" for name in sorted(found.over)
        ]

    async def _until_closed(self, app: App) -> None:
        with suppress(ReactiveKafkaError):
            await self._iterated(app)

    def _produce(self, number: int, what: str) -> None:
        for one in range(EACH):
            is_bad = self.fails and one % 3 == 2
            value = b"%s-%d-%s-%d" % (b"bad" if is_bad else b"good", number, what.encode(), one)
            stored = self.broker.produce(
                "orders", value, key=b"%d" % (one % 3), partition=one % PARTITIONS
            )
            self.produced[one % PARTITIONS, stored.offset] = value

    async def _rests(self, app: App) -> bool:
        """R1 and R5: wait until all is done."""
        deadline = now() + REST_S
        while missing := self._missing(app):
            if now() > deadline:
                self.violations.append(
                    f"R1, round {len(self.sizes)} does not come to rest: {missing[:4]}"
                )
                return False
            await asyncio.sleep(0.1)
        # What was on its way is over, and what repeats itself is seen.
        await asyncio.sleep(12.0)
        return True

    def _missing(self, app: App) -> list[object]:
        health = app.health()
        if not health.ready.is_up:
            return [str(one.data) for one in health.ready.checks if one.status == "DOWN"]
        facts = app.channel("orders").facts()
        waiting: list[object] = [one for one in facts.partitions if one.in_flight or one.queued]
        waiting += [value for value in self.produced.values() if not self._is_settled(value)]
        if waiting:
            return waiting
        return [
            f"commit of {number}: {self._position(number)}"
            for number in range(PARTITIONS)
            if self._position(number) < self.broker.end(tp(number))
        ]

    def _is_settled(self, value: bytes) -> bool:
        if not value.startswith(b"bad"):
            return value in self.handled and (self.shape != "rows" or value in self.rows.data)
        if self.strategy == "ignore":
            return self.calls[value] > 0
        topic = LETTERS if self.strategy == "dead-letter-queue" else RETRIES
        return any(
            one.value == value
            for number in range(PARTITIONS)
            for one in self.broker.log(tp(number, topic))
        )

    def _position(self, number: int) -> int:
        if self.shape in ("checkpoint", "rows"):
            row = self.rows.row(GROUP, tp(number))
            return 0 if row is None else row.position or 0
        committed = self.broker.committed(GROUP).get(tp(number))
        return 0 if committed is None else committed.offset

    def _committed(self, entry: CommitEntry) -> None:
        for partition, position in entry.offsets.items():
            if partition.topic != "orders":
                continue
            for (number, offset), value in self.produced.items():
                if (
                    number == partition.partition
                    and offset < position.offset
                    and not self._is_settled(value)
                ):
                    self.violations.append(
                        f"R6, {partition} is committed up to {position.offset}, not {value!r}"
                    )

    # -- what happens

    async def _cancelled_send(self, app: App, emitter: Emitter | None) -> None:
        self.broker.delay_next("send", 0.3, 4)
        sender = emitter if emitter is not None else app.emitter("invoices")
        await asyncio.gather(*(self._cancelled(sender.send(b"more")) for _ in range(6)))

    async def _slow_send(self, app: App, emitter: Emitter | None) -> None:
        self.broker.delay_next("send", 1.0, 5)
        await asyncio.sleep(1.0)

    async def _cancelled_commit(self, app: App, emitter: Emitter | None) -> None:
        self.broker.delay_next("commit", 0.3, 2)
        await self._cancelled(app.channel("orders").commit())

    async def _cancelled_seek(self, app: App, emitter: Emitter | None) -> None:
        await self._cancelled(app.channel("orders").seek(tp(0), self._back(3)))

    async def _cancelled_committed(self, app: App, emitter: Emitter | None) -> None:
        await self._cancelled(app.channel("orders").lag())

    def _back(self, records: int) -> int:
        """Where a seek passes over nothing: before what is committed."""
        return max(0, self._position(0) - records)

    async def _seek(self, app: App, emitter: Emitter | None) -> None:
        for _ in range(3):
            with suppress(ReactiveKafkaError):
                await app.channel("orders").seek(tp(0), self._back(2))
            await asyncio.sleep(self.dice.choice((0.0, 0.1)))

    async def _pause(self, app: App, emitter: Emitter | None) -> None:
        channel, number = app.channel("orders"), len(self.sizes)
        channel.pause(reason=f"round {number}")
        await asyncio.sleep(0.5)
        channel.resume(reason=f"round {number}")

    async def _rebalance(self, app: App, emitter: Emitter | None) -> None:
        self.broker.rebalance(GROUP)
        await asyncio.sleep(self.dice.choice((0.0, 1.0)))

    async def _replaced(self, app: App, emitter: Emitter | None) -> None:
        self.broker.fail_next("poll", TransientBrokerError("the client is of no use any more"))
        await asyncio.sleep(self.dice.choice((0.0, 3.0)))

    async def _stop_start(self, app: App, emitter: Emitter | None) -> None:
        await app.channel("orders").stop()
        await app.channel("orders").start()

    async def _outage(self, app: App, emitter: Emitter | None) -> None:
        self.broker.down = True
        await asyncio.sleep(self.dice.choice((1.0, 9.0)))
        self.broker.down = False

    async def _lost_commit(self, app: App, emitter: Emitter | None) -> None:
        call: Any = "commit_in" if self.shape == "exactly" else "commit"
        self.broker.fail_next(
            call, OutcomeUnknownError("no answer"), stored=self.dice.random() < 0.5
        )
        if self.shape in ("checkpoint", "rows"):
            self.rows.faults.script("write" if self.shape == "checkpoint" else "exit", "lost")
        await asyncio.sleep(1.5)

    async def _lost_send(self, app: App, emitter: Emitter | None) -> None:
        self.broker.fail_next(
            "send", OutcomeUnknownError("no answer"), 2, stored=self.dice.random() < 0.5
        )
        await asyncio.sleep(1.0)

    async def _lost_end(self, app: App, emitter: Emitter | None) -> None:
        self.broker.fail_next(
            "end", OutcomeUnknownError("no answer"), stored=self.dice.random() < 0.5
        )
        if self.dice.random() < 0.5:
            self.broker.rebalance(GROUP)
        await asyncio.sleep(1.0)

    async def _expire(self, app: App, emitter: Emitter | None) -> None:
        for member in sorted(self.broker.members(GROUP)):
            self.broker.expire(GROUP, member, notice_after_s=self.dice.choice((0.0, 2.0)))
        await asyncio.sleep(3.0)

    async def _away_store(self, app: App, emitter: Emitter | None) -> None:
        self.rows.faults.away = True
        await asyncio.sleep(self.dice.choice((0.5, 6.0)))
        self.rows.faults.away = False

    async def _stall(self, app: App, emitter: Emitter | None) -> None:
        """The process stands still for a while."""
        clock: Any = self.broker._state.clock
        clock.advance(self.dice.choice((1.5, 4.0)))
        await asyncio.sleep(0.5)

    async def _leader(self, app: App, emitter: Emitter | None) -> None:
        """A partition has no leader for a while."""
        self.broker.leader_away(tp(0))
        await asyncio.sleep(self.dice.choice((1.0, 8.0)))
        self.broker.leader_back(tp(0))

    async def _look(self, app: App, emitter: Emitter | None) -> None:
        """Somebody asks, again and again."""
        for _ in range(3):
            app.health()
            app.facts()
            with suppress(ReactiveKafkaError):
                await app.channel("orders").lag()


def run_rounds(seed: int) -> Rounds:
    """Play the rounds of a seed."""
    rounds = Rounds(seed)
    run_seeded(rounds.play, seed)
    return rounds
