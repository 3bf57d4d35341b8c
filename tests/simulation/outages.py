"""Outages that last longer than every default limit, for applications at their default settings.

A seed draws an application, what of its surroundings is away, and for how long: a cluster (its own,
that of what it sends, that of its dead letters), a checkpoint store, a schema registry, a topic
that is missing, a right that is withdrawn. Records come all the while.

- L1: it is alive throughout, unless a handler itself had a record for too long.
- L2: within 5 s (7 s for stores and registries) it is not ready, and says what is away; so it stays
  to the end of it.
- L3: within 10 s of the end of the outage it is ready, and all that was produced before is handled
  and written; one interval of commits later the positions are behind it.
- L4: nothing is lost.
- L5: no position is committed past a record whose result is not there.
- L6: a record becomes poison if and only if its handler has it for longer than
  ``unprocessed_record_max_age``.
- L7: the application's events about the outage have the numbers of the outage.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, Rows
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.observe import events as told
from reactive_kafka.schemas.answers import RegistryAway
from reactive_kafka.testing import FakeClock, MemoryBroker
from tests.app.helpers import Recorder, make_broker, now, tp
from tests.simulation.clusters import Clusters
from tests.simulation.loop import run_seeded
from tests.simulation.scenario import protocol_of

MAIN, OUT, DEAD = "main:9092", "out:9092", "dead:9092"
PARTITIONS = 2
GROUP, LETTERS = "billing", "dead"
LIMIT_S = 60.0
"""The default of ``unprocessed_record_max_age``."""
LONG_S = 80.0
"""So long a handler has a record that is to become poison."""
LOOK_S = 0.25
BEFORE_S, AFTER_S, CALM_S = 8.0, 10.0, 120.0
COMMIT_S = 6.0
"""The default of ``commit_interval``, and a second for the commit."""
NAMED_S = {"store": 7.0, "registry": 7.0}
DURING = 12
"""So many records come during the outage: few enough to be handled within a second or two of its
end.
"""
LENGTHS_S = (35.0, 50.0, 70.0, 150.0, 400.0)
"""Longer than ``send_timeout`` and ``drain_timeout`` (30 s), the session (45 s), poison, delivery
timeouts (120 s).
"""

SENDS = ("output", "yields", "emitter", "batch", "transaction")
AWAY: dict[str, tuple[str, ...]] = {
    "plain": ("cluster", "topic"),
    "manual": ("cluster",),
    "retries": ("cluster", "out"),
    "letters": ("cluster", "letters", "missing", "right"),
    "delayed": ("cluster",),
    "checkpoint": ("cluster", "store"),
    "rows": ("cluster", "store"),
    "registered": ("registry", "cluster", "out"),
    **dict.fromkeys(SENDS, ("cluster", "out", "missing", "right")),
}
"""The applications, and what may be away for them."""
NAMES = {
    "cluster": "broker",
    "out": "broker",
    "letters": "broker",
    "store": "store",
    "registry": "registry",
    "topic": "orders",
    "missing": "invoices",
    "right": "WRITE",
}
"""What a reason has to say of what is away; a dead letter's topic is told by its name, too."""
EXPECTED = (*AWAY, *NAMES, *(f"{length:g} s" for length in LENGTHS_S), "long", "letter")
"""What must have happened in a run of many seeds."""


@dataclass
class Invoice:
    """What is written in a format with a schema."""

    id: str


@dataclass
class Outage:
    """What a seed has drawn, and what came of it."""

    seed: int
    dice: random.Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    bites: Counter[str] = field(default_factory=Counter)
    recorder: Recorder = field(default_factory=Recorder)
    produced: list[bytes] = field(default_factory=list)
    handled: Counter[bytes] = field(default_factory=Counter)
    # Place -> how long its handler had it.
    had: dict[tuple[int, int], float] = field(default_factory=dict)
    places: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)
    # Of the outage.
    began: float = 0.0
    ended: float = 0.0
    # The logs of a topic that is missing.
    hidden: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(f"outage {self.seed}")
        self.shape = dice.choice(sorted(AWAY))
        self.what = dice.choice(AWAY[self.shape])
        self.lasts_s = dice.choice(LENGTHS_S)
        self.waits = dice.random() < 0.5
        self.ordering = dice.choice(("partition", "key", "unordered"))
        self.concurrency = dice.choice((1, 4, 16))
        self.takes_s = dice.choice((0.0, 0.05))
        # Records come during the outage, too.
        self.is_busy = dice.random() < 0.7
        self.has_long = self.shape in ("plain", "retries", "output") and dice.random() < 0.2
        self.brokers: dict[str, MemoryBroker] = {}

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.shape}, {self.what} away for {self.lasts_s:g} s, {self.ordering}, "
            f"concurrency {self.concurrency}, wait_for_write {self.waits}, "
            f"{'busy' if self.is_busy else 'idle'}{', a long handler' if self.has_long else ''}"
        )

    # -- the application

    @property
    def has_letters(self) -> bool:
        return self.shape in ("letters", "delayed")

    def application(self) -> App:
        """At its defaults, but for what the seed is about."""
        orders: dict[str, Any] = {
            "group_id": GROUP,
            "group_protocol": protocol_of(self.seed),
            "auto_offset_reset": "earliest",
            "ordering": self.ordering,
        }
        orders["concurrency"] = self.concurrency
        invoices: dict[str, Any] = {
            "bootstrap_servers": self._where(OUT),
            "wait_for_write": self.waits,
        }
        if self.shape == "batch":
            orders |= {"ordering": "partition", "batch_max_records": 5, "batch_max_wait": "100ms"}
        elif self.shape == "transaction":
            orders["ordering"] = "partition"
            invoices["transactional_id"] = "billing"
        elif self.shape == "letters":
            letters = {"topic": LETTERS, "bootstrap_servers": self._where(DEAD)}
            orders |= {"failure_strategy": "dead-letter-queue", "dead_letter_queue": letters}
        elif self.shape == "delayed":
            delayed = {"topics": ["orders_retry_500"], "max_retries": 1}
            orders |= {"failure_strategy": "delayed-retry-topic", "delayed_retry": delayed}
        elif self.shape == "manual":
            orders["ack"] = "manual"
        elif self.shape == "retries":
            orders["retry"] = {"max_attempts": 3, "backoff": "100ms"}
        elif self.shape in ("checkpoint", "rows"):
            orders |= {"commit_strategy": "checkpoint", "checkpoint": {"store": "memory://unused"}}
            # A transaction is for the first record that is not settled.
            if self.shape == "rows":
                orders["ordering"] = "partition"
        elif self.shape == "registered":
            invoices["value_serializer"] = "json-schema"
        if self.has_long:
            orders["on_poison"] = "warn"
        tables: dict[str, Any] = {
            "kafka": {"bootstrap_servers": MAIN},
            "incoming": {"orders": orders},
            "http": {"enabled": False},
        }
        if self.sends:
            tables["outgoing"] = {"invoices": invoices}
        if self.shape == "registered":
            tables["schema_registry"] = {"url": "memory://"}
        app = App(tables, observer=self.recorder)
        app._connector, app._clock = Clusters(self.brokers), self.brokers[MAIN]._state.clock
        store = MemoryStore(self.rows)
        app._stores = lambda _: store
        getattr(self, f"_{self.shape}")(app)
        return app

    def _where(self, own: str) -> str:
        """Its own cluster where that is to be away alone; else one of both, for transactions need
        one.
        """
        return own if self.what in ("out", "letters") and self.shape != "transaction" else MAIN

    @property
    def sends(self) -> bool:
        return self.shape in (*SENDS, "retries", "registered")

    async def _work(self, message: Message[bytes]) -> None:
        """What each handler does with a record. Raises for those that are bad."""
        value, started = message.payload, now()
        try:
            if value.startswith(b"long"):
                await asyncio.sleep(LONG_S)
            else:
                await asyncio.sleep(self.takes_s)
        finally:
            self.had[message.partition, message.offset] = now() - started
        self.handled[value] += 1
        if value.startswith(b"bad") or (self.shape == "retries" and self.handled[value] == 1):
            raise ValueError("bad")

    def _sending(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Record:
            await self._work(message)
            return Record(message.payload, key=message.key)

    _output = _retries = _transaction = _sending

    def _registered(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> Invoice:
            await self._work(message)
            return Invoice(message.payload.decode())

    def _yields(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> AsyncIterator[Record]:
            yield Record(message.payload, key=message.key)
            await self._work(message)
            yield Record(message.payload, key=message.key)

    def _emitter(self, app: App) -> None:
        emitter = app.emitter("invoices")

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)
            await emitter.send(Record(message.payload, key=message.key))

    def _batch(self, app: App) -> None:
        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(batch: Batch[bytes]) -> list[Record]:
            for message in batch:
                await self._work(message)
            return [Record(message.payload, key=message.key) for message in batch]

    def _handling(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)

    _plain = _letters = _delayed = _checkpoint = _handling

    def _manual(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await self._work(message)
            await message.ack()

    def _rows(self, app: App) -> None:
        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            async with message.transaction() as connection:
                await self._work(message)
                connection[message.payload] = connection.get(message.payload, 0) + 1

    # -- what is away

    def _gate(self, app: App) -> tuple[Callable[[], None], Callable[[], None]]:
        """What begins the outage, and what ends it."""
        main = self.brokers[MAIN]
        if self.what in ("cluster", "out", "letters"):
            own = (
                MAIN
                if self.shape == "transaction"
                else {"cluster": MAIN, "out": OUT, "letters": DEAD}[self.what]
            )
            broker = self.brokers[own]
            return (lambda: setattr(broker, "down", True)), (lambda: setattr(broker, "down", False))
        if self.what == "store":
            faults = self.rows.faults
            return (lambda: setattr(faults, "away", True)), (lambda: setattr(faults, "away", False))
        if self.what == "registry":
            assert app._run is not None and app._run.channels is not None
            registry: Any = app._run.channels.registry
            inner = registry.source
            return (lambda: setattr(registry, "source", _Away())), (
                lambda: setattr(registry, "source", inner)
            )
        topic = (
            "orders" if self.what == "topic" else LETTERS if self.shape == "letters" else "invoices"
        )
        if self.what == "right":
            error = FatalBrokerError(f"{topic}: a right on the topic is missing (WRITE)")
            return (lambda: main.topic_away(topic, error)), (lambda: main.topic_back(topic))
        # A topic that is missing for a while, and comes back with its records.
        state = main._state
        kept: dict[str, Any] = {}

        def away() -> None:
            state.auto_create = False
            kept["logs"], kept["id"] = state.logs.pop(topic), state.ids.pop(topic)
            self.hidden = kept["logs"]
            main.topic_away(topic)

        def back() -> None:
            state.logs[topic], state.ids[topic] = kept["logs"], kept["id"]
            self.hidden = []
            state.auto_create = True
            main.topic_back(topic)
            state.changed.notify()

        return away, back

    # -- the run

    async def play(self, clock: FakeClock) -> None:
        self.brokers = {
            MAIN: make_broker(PARTITIONS),
            OUT: make_broker(PARTITIONS),
            DEAD: make_broker(PARTITIONS),
        }
        main = self.brokers[MAIN]
        for topic in ("orders", "invoices", LETTERS, "orders_retry_500"):
            for broker in self.brokers.values():
                broker.create_topic(topic, PARTITIONS)
        main.watch_commits(GROUP, self._committed)
        app = self.application()
        await app.start()
        begin, end = self._gate(app)
        watching = asyncio.create_task(self._watch(app))
        # Later it would be asked for nothing.
        if self.what == "registry":
            self.began = now()
            begin()
        for number in range(20):
            self._produce(
                b"%d" % number if number % 4 or not self.has_letters else b"bad-%d" % number
            )
            await asyncio.sleep(BEFORE_S / 20)
        if self.has_long:
            self._produce(b"long")
        if not self.began:
            # Some are on their way when it begins.
            if self.is_busy:
                for number in range(4):
                    self._produce(b"at-%d" % number)
                await asyncio.sleep(self.dice.choice((0.0, 0.01, 0.1)))
            self.began = now()
            begin()
        for number in range(DURING):
            if self.is_busy:
                self._produce(
                    b"in-%d" % number
                    if number % 5 or not self.has_letters
                    else b"bad-in-%d" % number
                )
            await asyncio.sleep(self.lasts_s * 0.8 / DURING)
        await asyncio.sleep(self.began + self.lasts_s - now())
        self.ended = now()
        end()
        before = list(self.produced)
        await self._is_within(
            AFTER_S + self._excuse_s(), lambda: self._missing(before) == [], "L3", before
        )
        wait_s = AFTER_S + COMMIT_S + self._excuse_s()
        await self._is_within(wait_s, lambda: self._uncommitted(before) == [], "L3", before)
        is_ready = await self._is_within(
            AFTER_S + self._excuse_s(), lambda: app.health().ready.is_up, "L3"
        )
        if not is_ready:
            self.violations[-1] += f": not ready, {_reasons(app)}"
        for number in range(4):
            self._produce(b"after-%d" % number)
        every = self.produced
        await self._is_within(
            CALM_S, lambda: self._missing(every) + self._uncommitted(every) == [], "L4", every
        )
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await app.stop()
        self._judge()
        for broker in self.brokers.values():
            await broker.close()
        left = [one.get_name() for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        if left:
            self.violations.append(f"L4, tasks were left behind: {left}")

    def _excuse_s(self) -> float:
        """How much longer all may take: a handler that has a record for long is no outage."""
        if not self.has_long:
            return 0.0
        attempts = 2 if self.shape == "retries" else 1
        return attempts * LONG_S + 5.0

    def _produce(self, value: bytes) -> None:
        if "orders" not in self.brokers[MAIN].topics():
            return
        partition = len(self.produced) % PARTITIONS
        stored = self.brokers[MAIN].produce("orders", value, key=value[-1:], partition=partition)
        self.produced.append(value)
        self.places[value] = partition, stored.offset

    async def _is_within(
        self, seconds: float, fact: Callable[[], bool], rule: str, values: list[bytes] | None = None
    ) -> bool:
        deadline = LOOK_S + (now() + seconds if rule == "L4" else self.ended + seconds)
        while not fact():
            if now() > deadline:
                missing = (
                    [] if values is None else [*self._missing(values), *self._uncommitted(values)]
                )
                what = "" if values is None else f": {missing[:5]} are missing"
                self.violations.append(f"{rule}, not done within {seconds:g} s{what}")
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _watch(self, app: App) -> None:
        """L1 and L2, at each moment."""
        was_alive, said = True, 0
        while True:
            health = app.health()
            if was_alive and not health.live.is_up:
                was_alive = False
                why = [
                    check.data.get("reason") or check.data.get("poison")
                    for check in health.live.checks
                ]
                self.violations.append(
                    f"L1, not alive {now() - self.began:.0f} s into the outage: {why}"
                )
            within = NAMED_S.get(self.what, 5.0)
            if (
                self.began
                and not self.ended
                and now() > self.began + within
                and self._must_be_named()
            ):
                reasons = _reasons(app)
                wanted = (
                    NAMES[self.what]
                    if self.what != "missing" or self.shape != "letters"
                    else LETTERS
                )
                if health.ready.is_up or wanted.lower() not in reasons.lower():
                    said += 1
                    if said == 1:
                        ready = "ready" if health.ready.is_up else f"not ready: {reasons}"
                        at = now() - self.began
                        self.violations.append(
                            f"L2, {at:.1f} s into the outage of {wanted!r}: {ready}"
                        )
            await asyncio.sleep(LOOK_S)

    def _must_be_named(self) -> bool:
        """A topic that is missing, a right or a store shows where something is to be written."""
        return (self.is_busy and not self.has_long) or self.what not in (
            "missing",
            "right",
            "store",
        )

    # -- what must be so

    def _results(self) -> Counter[bytes]:
        found = Counter[bytes]()
        for broker in self.brokers.values():
            for topic in ("invoices", LETTERS, "orders_retry_500"):
                for number in range(PARTITIONS):
                    if topic in broker._state.logs:
                        found.update(
                            one.value or b"" for one in broker.committed_log(tp(number, topic))
                        )
        found.update(one.value or b"" for one in chain(*(log.records for log in self.hidden)))
        return found

    def _is_done(self, value: bytes, results: Counter[bytes]) -> bool:
        if value.startswith(b"bad"):
            return results[value] > 0
        if self.shape == "registered":
            return any(value.decode() in one.decode(errors="replace") for one in results)
        if self.shape == "rows":
            return value in self.rows.data
        if self.sends:
            return results[value] >= (2 if self.shape == "yields" else 1)
        return self.handled[value] > 0

    def _missing(self, values: list[bytes]) -> list[object]:
        """Which values have no result yet."""
        results = self._results()
        return [value for value in values if not self._is_done(value, results)]

    def _uncommitted(self, values: list[bytes]) -> list[object]:
        """Of which partitions the position is not behind these values."""
        ends = Counter[int]()
        for value in values:
            partition, offset = self.places[value]
            ends[partition] = max(ends[partition], offset + 1)
        return [
            f"commit of {number}" for number, end in ends.items() if self._position(number) < end
        ]

    def _position(self, number: int) -> int:
        if self.shape in ("checkpoint", "rows"):
            row = self.rows.row(GROUP, tp(number))
            return 0 if row is None else row.position or 0
        committed = self.brokers[MAIN].committed(GROUP).get(tp(number))
        return 0 if committed is None else committed.offset

    def _committed(self, entry: CommitEntry) -> None:
        if self.shape == "transaction":
            # Its results are committed at the same moment.
            return
        results = self._results()
        for partition, position in entry.offsets.items():
            if partition.topic != "orders":
                continue
            for value, (number, offset) in self.places.items():
                if (
                    number == partition.partition
                    and offset < position.offset
                    and not self._is_done(value, results)
                ):
                    self.violations.append(
                        f"L5, {partition} is committed up to {position.offset}, {value!r} is not done"
                    )

    def _judge(self) -> None:
        """L6 and L7, and what the run has shown."""
        poisoned = {
            (one.partition.partition, one.offset) for one in self.recorder.of(told.RecordPoisoned)
        }
        long = {place for place, had in self.had.items() if had > LIMIT_S}
        for place in sorted(poisoned - long):
            self.violations.append(
                f"L6, {place} was poison, its handler had it for {self.had.get(place, 0):.1f} s"
            )
        for place in sorted(long - poisoned):
            self.violations.append(
                f"L6, {place} was no poison, its handler had it for {self.had[place]:.1f} s"
            )
        for one in self.recorder.of(told.RecordPoisoned):
            if not LIMIT_S <= one.age_s <= LIMIT_S + 2.0:
                self.violations.append(f"L7, poison was told with an age of {one.age_s:.1f} s")
        away = [event.away_s for event in self.recorder.of(told.BrokerAvailable)]
        away += [event.away_s for event in self.recorder.of(told.StoreAvailable)]
        for away_s in away:
            if not self.lasts_s - 20.0 <= away_s <= self.lasts_s + AFTER_S:
                self.violations.append(
                    f"L7, told {away_s:.1f} s away, and it was {self.lasts_s:g} s"
                )
        self.bites.update([self.shape, self.what, f"{self.lasts_s:g} s"])
        self.bites["long"] += len(long)
        self.bites["letter"] += sum(value.startswith(b"bad") for value in self.produced)


class _Away:
    """A registry that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: object) -> Any:
            raise RegistryAway("the registry is away")

        return ask


def _reasons(app: App) -> str:
    checks = app.health().ready.checks
    return "; ".join(str(one.data.get("reason")) for one in checks if one.status == "DOWN")


def run_outage(seed: int) -> Outage:
    """Play the outage of a seed."""
    outage = Outage(seed)
    run_seeded(outage.play, seed)
    return outage
