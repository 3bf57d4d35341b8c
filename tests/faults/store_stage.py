"""What tests of stores share: services with a channel for each store, and what their stores have,
seen from outside.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from uuid import uuid4

import psycopg
from aiokafka.admin import NewTopic
from redis.asyncio import Redis as RedisClient

from reactive_kafka import TopicPartition as Place
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.errors import StoreAwayError
from tests.faults.checker import Commit, Disruption, Evidence, Rules, check, report
from tests.faults.driver import Life, Load, Member, create_topics, free_port, until
from tests.faults.history import Event, Partition
from tests.faults.observer import read_all_commits, read_log, read_log_ends
from tests.faults.store_service import TABLE, add, rows_key

SERVICE = "tests.faults.store_service"
PARTITIONS = 4
COMMIT_INTERVAL_S = 0.2
LATENCY_S = (0.01, 0.08)
# How old what was done in a transaction may be, to be begun again after a kill, with the machine
# busy.
WINDOW_S = 1.0
# The same where positions are written now and then: a busy disk takes seconds.
INTERVAL_WINDOW_S = 5.0
LOOK_EVERY_S = 0.1

CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"
auto_offset_reset = "earliest"
value_deserializer = "json"
commit_strategy = "checkpoint"
commit_interval = "{interval}s"
failure_strategy = "dead-letter-queue"
concurrency = 8
drain_timeout = "10s"
# Partitions of a killed member move after a short session, which the consumer protocol's is not.
group_protocol = "classic"
"session.timeout.ms" = {session_ms}
"heartbeat.interval.ms" = 300
{channels}
[http]
port = {port}
"""
CHANNEL = """
[incoming.{name}]
topic = "{topic}"
group_id = "{topic}"
dead_letter_queue.topic = "dead-{topic}"
[incoming.{name}.checkpoint]
store = "{store}"
kafka_commit_interval = "500ms"
"""

Rows = Counter[tuple[Partition, int]]
"""Topic and partition, offset -> how often its row is there."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A channel under test.

    Attributes:
        store: The URL of its store.
        rows: Reads the rows that its handler wrote, as topic and partition, offset, process; None:
            it writes none.
    """

    store: str
    rows: Callable[[Sequence[Partition]], Awaitable[list[tuple[Partition, int, str]]]] | None = None


def in_postgres(dsn: str, client: str = "asyncpg") -> Kept:
    """A channel with its positions and rows in PostgreSQL, through one of its clients."""

    async def rows(partitions: Sequence[Partition]) -> list[tuple[Partition, int, str]]:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            found = await connection.execute(
                'SELECT topic, "partition", "offset", process FROM rows WHERE topic = ANY(%s)',
                [[topic for topic, _ in partitions]],
            )
            return [
                ((topic, number), offset, process) async for topic, number, offset, process in found
            ]

    return Kept(dsn.replace("postgresql:", f"postgresql+{client}:"), rows)


def make_table(dsn: str) -> None:
    """What the rows of PostgreSQL go into; nothing in it would refuse a double."""
    with psycopg.connect(dsn) as connection:
        connection.execute(TABLE)


def in_redis(url: str) -> Kept:
    """A channel with its positions and rows in Redis."""

    async def rows(partitions: Sequence[Partition]) -> list[tuple[Partition, int, str]]:
        found = []
        async with RedisClient.from_url(url, decode_responses=True) as client:
            for tp in partitions:
                for row in await client.lrange(rows_key(*tp), 0, -1):
                    offset, process = str(row).split()
                    found.append((tp, int(offset), process))
        return found

    return Kept(url, rows)


class Watch:
    """Reads the rows of a channel's checkpoints again and again, and goes on when the store is
    away.

    Attributes:
        commits: One entry a partition for each change of its position that was seen.
        latest: partition -> its row, as it was last seen.
        failures: How often the store was away.
    """

    def __init__(self, store: CheckpointStore, group: str, partitions: Sequence[Partition]) -> None:
        self._store = store
        self._group = group
        self._partitions = [Place(*tp) for tp in partitions]
        self.commits: list[Commit] = []
        self.latest: dict[Partition, Checkpoint] = {}
        self.failures = 0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Watch]:
        """Look while the block runs; raises what kept it from looking."""
        task = asyncio.create_task(self._watch(), name=f"watch {self._group}")
        try:
            yield self
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self._store.close()

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
            except StoreAwayError:
                self.failures += 1
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Read the rows as they are now."""
        found = await self._store.read(self._group, self._partitions)
        t = time.time()
        for place, row in found.items():
            tp = (place.topic, place.partition)
            if row.position is not None and (
                tp not in self.latest or self.latest[tp].position != row.position
            ):
                self.commits.append(Commit(t, tp, row.position))
            self.latest[tp] = row

    def position(self, tp: Partition) -> int:
        """The position of a partition as it was last seen; 0 where there is none."""
        return (self.latest[tp].position or 0) if tp in self.latest else 0


@dataclass
class Stage:
    """A run: a topic and a group for each channel, load on all of them, services.

    Attributes:
        cuts: What the test did to processes, for the checker.
    """

    bootstrap: str
    run: str
    folder: Path
    channels: Mapping[str, Kept]
    load: Load
    watches: Mapping[str, Watch]
    session_ms: int
    members: list[Member] = field(default_factory=list)
    cuts: list[Disruption] = field(default_factory=list)

    def topic(self, channel: str) -> str:
        """Of a channel; its group is called so, too."""
        return topic_of(self.run, channel)

    def partitions(self, channel: str) -> list[Partition]:
        """Those of a channel's topic."""
        return partitions_of(self.topic(channel))

    def member(
        self,
        name: str,
        *,
        latency_s: tuple[float, float] = LATENCY_S,
        stores: Mapping[str, str] | None = None,
    ) -> Member:
        """A service with every channel, not started yet; *stores* are other URLs of the same
        stores.
        """
        urls = {channel: kept.store for channel, kept in self.channels.items()} | dict(stores or {})
        tables = [
            CHANNEL.format(name=channel, topic=self.topic(channel), store=url)
            for channel, url in urls.items()
        ]
        port = free_port()
        config = CONFIG.format(
            bootstrap=self.bootstrap,
            interval=COMMIT_INTERVAL_S,
            session_ms=self.session_ms,
            channels="".join(tables),
            port=port,
        )
        rows = [channel for channel, kept in self.channels.items() if kept.rows is not None]
        options = ("--rows", *rows, "--latency", *map(str, latency_s))
        made = Member(name, self.folder, config, port, SERVICE, options)
        self.members.append(made)
        return made

    @property
    def events(self) -> list[Event]:
        """The histories of all processes up to now."""
        return [event for member in self.members for event in member.events]

    def done(self, channel: str, process: str = "") -> int:
        """How many times a handler of a channel came to its end so far, in a process or in all."""
        topic = self.topic(channel)
        return sum(
            event.kind == "end" and event.outcome == "ok" and event.tp[0] == topic
            for event in self.events
            if process in ("", event.process)
        )

    async def busy(self, life: Life, records: int = 5, deadline_s: float = 60.0) -> None:
        """Wait until a process has handled some records of every channel, and is in the middle of
        others.
        """
        await until(
            lambda: (
                all(self.done(name, life.name) >= records for name in self.channels)
                and life.in_flight
            ),
            deadline_s,
            f"{life.name} is busy",
            lambda: (
                f"{ {name: self.done(name, life.name) for name in self.channels} }: {life.tail()}"
            ),
        )

    async def goes_on(
        self, channel: str, life: Life, records: int = 20, deadline_s: float = 40.0
    ) -> None:
        """Wait until a process has handled so many records more of a channel."""
        before = self.done(channel, life.name)
        await until(
            lambda: self.done(channel, life.name) >= before + records,
            deadline_s,
            f"{life.name} goes on with {channel}",
            life.tail,
        )

    async def finish(self, deadline_s: float = 60.0) -> None:
        """Wait until everything is stored, and stop what still runs."""
        ends = self._ends()
        await until(
            lambda: all(self.watches[name].position(tp) >= end for (name, tp), end in ends.items()),
            deadline_s,
            "everything is stored",
            lambda: f"{self._missing()}: {self.members[0].life.tail()}",
        )
        running = [member.life for member in self.members if member.life.exit_code is None]
        for life in running:
            life.send(signal.SIGTERM)
        for life in running:
            assert await life.exited(20) == 0, life.tail()
        for watch in self.watches.values():
            await watch.look()

    def _ends(self) -> dict[tuple[str, Partition], int]:
        ends: dict[tuple[str, Partition], int] = {}
        names = {self.topic(name): name for name in self.channels}
        for tp, offset in self.load.sent:
            place = names[tp[0]], tp
            ends[place] = max(ends.get(place, 0), offset + 1)
        return ends

    def _missing(self) -> dict[Partition, tuple[int, int]]:
        return {
            tp: (self.watches[name].position(tp), end)
            for (name, tp), end in self._ends().items()
            if self.watches[name].position(tp) < end
        }

    async def wrong(self) -> dict[str, list[str]]:
        """channel -> what is not as it should be, once all has come to its end; empty where all is
        right.
        """
        commits = await read_all_commits(self.bootstrap)
        found = {
            name: await self._wrong(name, commits.get(self.topic(name), []))
            for name in self.channels
        }
        return {name: problems for name, problems in found.items() if problems}

    async def _wrong(self, name: str, in_kafka: Sequence[Commit]) -> list[str]:
        partitions, watch = self.partitions(name), self.watches[name]
        log = await read_log(self.bootstrap, partitions)
        letters = await read_log_ends(self.bootstrap, [(f"dead-{self.topic(name)}", 0)])
        evidence = Evidence(
            events=[event for event in self.events if event.tp[0] == self.topic(name)],
            commits=[*watch.commits, *in_kafka],
            log=log,
            log_end=await read_log_ends(self.bootstrap, partitions),
            sent={
                place: id for place, id in self.load.sent.items() if place[0][0] == self.topic(name)
            },
            maybe=frozenset(self.load.maybe),
            disruptions=self.cuts,
        )
        rows = self.channels[name].rows
        window_s = WINDOW_S if rows is not None else INTERVAL_WINDOW_S
        found = [report(check(evidence, Rules(ordered=True, duplicate_window_s=window_s)))]
        found += _wrong_states(log, watch.latest)
        found += _wrong_in_kafka(evidence.log_end, in_kafka)
        found += [
            f"{one.process}, {one.tp}, {one.offset}: {one.outcome}"
            for one in evidence.events
            if _misled(one)
        ]
        found += [f"{tp}: {end} dead letters" for tp, end in letters.items() if end]
        if rows is not None:
            found += wrong_rows(
                log, Counter((tp, offset) for tp, offset, _ in await rows(partitions))
            )
        return [problem for problem in found if problem]


def _misled(event: Event) -> bool:
    return event.outcome.startswith("found")


def _wrong_states(
    log: Mapping[Partition, Mapping[int, str]], latest: Mapping[Partition, Checkpoint]
) -> list[str]:
    """Every state whose sum is not that of the records below its position, or that is not at the
    end.
    """
    found = []
    for tp, records in log.items():
        right = reduce(add, records.values(), None)
        kept = latest.get(tp, Checkpoint(0))
        is_right = (
            kept.position == len(records)
            and kept.state is not None
            and json.loads(kept.state) == right
        )
        if records and not is_right:
            found.append(f"{tp}: {kept} is stored, and {len(records)} records make {right}")
    return found


def _wrong_in_kafka(ends: Mapping[Partition, int], commits: Sequence[Commit]) -> list[str]:
    """Every partition whose last commit in Kafka is not its end."""
    last = {commit.tp: commit.offset for commit in commits}
    return [
        f"{tp}: {last.get(tp)} is committed to Kafka, not {end}"
        for tp, end in ends.items()
        if last.get(tp, 0) != end
    ]


def wrong_rows(log: Mapping[Partition, Mapping[int, str]], rows: Rows) -> list[str]:
    """Every record that is not there exactly once."""
    once = Counter((tp, offset) for tp, records in log.items() for offset in records)
    return [
        f"{place}: {rows[place]} rows, not {once[place]}"
        for place in sorted(rows.keys() | once.keys())
        if rows[place] != once[place]
    ]


def begun_again(life: Life, events: Sequence[Event], topic: str) -> list[Event]:
    """What a process was in the middle of when it was killed, and another one has begun again."""
    others = {
        (event.tp, event.offset)
        for event in events
        if event.kind == "begin" and event.process != life.name
    }
    return [one for one in life.in_flight if one.tp[0] == topic and (one.tp, one.offset) in others]


def topic_of(run: str, channel: str) -> str:
    return f"{channel}-{run}"


def partitions_of(topic: str) -> list[Partition]:
    return [(topic, number) for number in range(PARTITIONS)]


@asynccontextmanager
async def staged(
    bootstrap: str, folder: Path, channels: Mapping[str, Kept], *, session_ms: int = 1500
) -> AsyncIterator[Stage]:
    """New topics for each channel, their stores watched; its processes do not outlive the block."""
    run = uuid4().hex[:8]
    topics = {name: topic_of(run, name) for name in channels}
    letters = [NewTopic(f"dead-{topic}", 1, 1) for topic in topics.values()]
    await create_topics(
        bootstrap, [*(NewTopic(topic, PARTITIONS, 1) for topic in topics.values()), *letters]
    )
    watches = {
        name: Watch(open_store(kept.store), topics[name], partitions_of(topics[name]))
        for name, kept in channels.items()
    }
    async with AsyncExitStack() as stack:
        everywhere = [tp for topic in topics.values() for tp in partitions_of(topic)]
        load = await stack.enter_async_context(Load(bootstrap, everywhere))
        for watch in watches.values():
            await stack.enter_async_context(watch.watching())
        stage = Stage(bootstrap, run, folder, channels, load, watches, session_ms)
        try:
            yield stage
        finally:
            for member in stage.members:
                for life in member.lives:
                    life.end()
