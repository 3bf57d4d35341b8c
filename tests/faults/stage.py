"""One run of the matrix: every strategy's topics, load, observers and members, and the verdict on
each strategy.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from aiokafka.admin import NewTopic

from tests.faults import letters
from tests.faults.checker import (
    Commit,
    Disruption,
    Evidence,
    Rules,
    Violation,
    check,
    duplicates,
    lost,
)
from tests.faults.driver import Life, Load, Member, Parcel, create_topics, free_port, until
from tests.faults.history import Event, Partition
from tests.faults.letters import Log
from tests.faults.observer import Observer, id_log, read_all_commits, read_log_ends, read_records
from tests.faults.strategies import (
    COMMIT_INTERVAL_S,
    DELAYS_MS,
    PARTITIONS,
    Strategy,
    config,
    parcel,
)

SERVICE = "tests.faults.matrix_service"
# Records a second.
PER_CHANNEL = 30
CONFIRM_S = 120.0
LOOK_EVERY_S = 0.3
# With the machine busy: a tick that comes late, and its answer.
COMMIT_TAKES_S = 0.7
LONGEST_HANDLER_S = 0.03
WINDOW_S = COMMIT_INTERVAL_S + COMMIT_TAKES_S + LONGEST_HANDLER_S


class Row(NamedTuple):
    """What one strategy went through in one scenario.

    Attributes:
        lost: Confirmed records that nobody settled.
        repeated: Handler calls beyond a record's first, in-place retries aside.
        letters: Dead letters in the log.
        silent_s: The longest time without a record handled, from the fault on.
        committed_s: From the fault until the group's committed offset moved again; inf where it
            never does.
    """

    strategy: str
    sent: int
    lost: int
    repeated: int
    letters: int
    silent_s: float
    committed_s: float
    violations: Sequence[Violation] = ()


@dataclass
class Stage:
    """A run. ``cuts`` are the disruptions that excuse repeated records, of every channel;
    ``outages`` those that excuse them of a channel that restarts meanwhile.
    """

    bootstrap: str
    run: str
    folder: Path
    strategies: Mapping[str, Strategy]
    load: Load
    observers: Mapping[str, Observer]
    session_ms: int
    members: list[Member] = field(default_factory=list)
    cuts: list[Disruption] = field(default_factory=list)
    outages: list[Disruption] = field(default_factory=list)
    fault_at: float = inf

    def member(self, name: str) -> Member:
        """A service with every channel, not started yet."""
        port = free_port()
        text = config(self.bootstrap, self.run, self.strategies, port, self.session_ms)
        made = Member(name, self.folder, text, port, SERVICE)
        self.members.append(made)
        return made

    @property
    def events(self) -> list[Event]:
        """The histories of all processes up to now."""
        return [event for member in self.members for event in member.events]

    async def busy(self, records: int = 60, since: float = 0.0, deadline_s: float = 40.0) -> None:
        """Wait until every channel has handled *records* since then."""
        await until(
            lambda: not self._behind(records, since),
            deadline_s,
            f"every channel has handled {records} records since {since}",
            lambda: f"{self._behind(records, since)} have not: {self.members[-1].life.tail()}",
        )

    def _behind(self, records: int, since: float) -> list[str]:
        handled = Counter(
            event.tp[0]
            for event in self.events
            if event.kind == "end" and event.outcome == "ok" and event.t > since
        )
        return [
            name for name, one in self.strategies.items() if handled[one.topic(self.run)] < records
        ]

    async def finish(self, deadline_s: float = 45.0) -> None:
        """Wait until everything is settled and committed, and stop what still runs."""
        for strategy in self.strategies.values():
            await self._settled(strategy, deadline_s)
        running = [member.life for member in self.members if member.life.exit_code is None]
        for life in running:
            life.send(signal.SIGTERM)
        for life in running:
            assert await life.exited(20) == 0, life.tail()

    async def _settled(self, strategy: Strategy, deadline_s: float) -> None:
        topic = strategy.topic(self.run)
        if not strategy.commits:
            due = {place for place in self.load.sent if place[0][0] == topic}
            await until(lambda: due <= self._done(topic), deadline_s, f"{topic} is handled")
            return
        await self._committed(strategy.name, [topic], deadline_s)
        # One after the other: each writes to the next.
        for retry in strategy.retry_topics(self.run):
            await self._committed(retry_group(strategy, self.run), [retry], deadline_s)

    def _done(self, topic: str) -> set[tuple[Partition, int]]:
        return {
            (event.tp, event.offset)
            for event in self.events
            if event.kind == "end" and event.outcome == "ok" and event.tp[0] == topic
        }

    async def _committed(self, observer: str, topics: Sequence[str], deadline_s: float) -> None:
        ends = await read_log_ends(self.bootstrap, _partitions(topics))
        seen = self.observers[observer]
        await until(
            lambda: all(seen.committed(tp) >= end for tp, end in ends.items() if end),
            deadline_s,
            f"all of {topics} is committed up to {ends}",
            lambda: f"{seen.latest}: {self.members[0].life.tail()}",
        )

    async def verdicts(self) -> list[Row]:
        """What every strategy went through, and which of its promises it broke."""
        commits = await read_all_commits(self.bootstrap)
        rows = [await self._verdict(strategy, commits) for strategy in self.strategies.values()]
        kept = {"cuts": self.cuts, "fault_at": self.fault_at, "rows": [row[:-1] for row in rows]}
        (self.folder / "matrix.json").write_text(json.dumps(kept))
        return rows

    async def _verdict(self, strategy: Strategy, logged: Mapping[str, list[Commit]]) -> Row:
        topic, events = strategy.topic(self.run), self.events
        origin = await read_records(self.bootstrap, _partitions([topic]))
        retries = [
            await read_records(self.bootstrap, _partitions([one]))
            for one in strategy.retry_topics(self.run)
        ]
        dead_topic = strategy.dead_letters.format(run=self.run)
        dead = await read_records(self.bootstrap, _partitions([dead_topic])) if dead_topic else {}
        evidence = await self._evidence(strategy.name, topic, origin, logged.get(topic, []))
        evidence = replace(
            evidence,
            sent={place: id for place, id in self.load.sent.items() if place[0][0] == topic},
            disruptions=[*self.cuts, *(self.outages if strategy.restarts else ())],
            letters=_written_on(strategy, origin, [*retries, dead]),
            lanes=_lanes(origin) if strategy.by_key else {},
        )
        rules = _rules(strategy, origin)
        found = [
            *_judged(strategy, evidence, rules),
            *letters.unfaithful(origin, dead, on_the_way=retries),
        ]
        for number, (hop, log) in enumerate(
            zip(strategy.retry_topics(self.run), retries, strict=True)
        ):
            group = retry_group(strategy, self.run)
            found += await self._judge_retries(
                hop, log, [*retries[number + 1 :], dead], group, logged.get(group, [])
            )
        if retries:
            found += letters.early(events, self._hops(strategy))
        return Row(
            strategy.name,
            len(evidence.sent),
            len(lost(evidence, rules)),
            duplicates(evidence.events),
            sum(map(len, dead.values())),
            self._silence(evidence.events),
            self._committed_again(evidence.commits),
            found,
        )

    async def _judge_retries(
        self, topic: str, log: Log, onward: Sequence[Log], group: str, logged: Sequence[Commit]
    ) -> list[Violation]:
        """A retry topic is a source of its own: what is in it must be handled or go on, and be
        committed only then.
        """
        evidence = await self._evidence(group, topic, log, logged)
        after = letters.written_on(log, onward[:-1], timed=True)
        dead = letters.written_on(log, onward[-1:], timed=False)
        evidence = replace(
            evidence,
            maybe=frozenset(letters.ids([log])),
            letters={**dead, **after},
            disruptions=self.cuts,
        )
        return check(
            evidence, Rules(releases=frozenset({"ok", "failed"}), duplicate_window_s=WINDOW_S)
        )

    async def _evidence(
        self, observer: str, topic: str, log: Log, logged: Sequence[Commit]
    ) -> Evidence:
        seen = self.observers[observer].commits
        return Evidence(
            events=[event for event in self.events if event.tp[0] == topic],
            commits=[commit for commit in (*seen, *logged) if commit.tp[0] == topic],
            log=id_log(log),
            log_end=await read_log_ends(self.bootstrap, list(log)),
            sent={},
            maybe=frozenset(self.load.maybe),
        )

    def _hops(self, strategy: Strategy) -> list[tuple[str, str, float]]:
        topics = [strategy.topic(self.run), *strategy.retry_topics(self.run)]
        return [
            (before, after, delay / 1000)
            for before, after, delay in zip(topics, topics[1:], DELAYS_MS, strict=False)
        ]

    def _silence(self, events: Sequence[Event]) -> float:
        """The longest time without an end of a record, of those that lasted until after the
        fault.
        """
        ends = sorted(
            event.t for event in events if event.kind == "end" and event.outcome != "cancelled"
        )
        gaps = [after - before for before, after in pairwise(ends) if after >= self.fault_at]
        return max(gaps, default=inf)

    def _committed_again(self, commits: Sequence[Commit]) -> float:
        after = [
            commit.t for commit in commits if commit.source == "log" and commit.t > self.fault_at
        ]
        return min(after, default=inf) - self.fault_at


def retry_group(strategy: Strategy, run: str) -> str:
    """The group that reads the retry topics of a channel."""
    return f"kafka-delayed-retry-topic-{strategy.topic(run)}"


def _judged(strategy: Strategy, evidence: Evidence, rules: Rules) -> list[Violation]:
    if strategy.commits:
        found = check(evidence, rules)
        # what the client commits by itself says nothing about what was handled, so repeats cannot
        # be bounded
        return found if strategy.safe else [one for one in found if one.invariant != "I7"]
    found = [
        Violation("I1", f"{strategy.name}: {one} was committed")
        for one in evidence.commits
        if one.offset >= 0
    ]
    never = replace(evidence, commits=(), log_end={})
    return [*found, *(one for one in check(never, rules) if one.invariant != "I7")]


def _rules(strategy: Strategy, origin: Log) -> Rules:
    skipped = frozenset(
        (tp, offset)
        for tp, records in origin.items()
        for offset, stored in records.items()
        if strategy.unreadable_is_skipped and not (stored.value or b"").startswith(b"{")
    )
    return Rules(
        safe=strategy.safe,
        ordered=strategy.ordered,
        settles=strategy.settles,
        releases=strategy.releases,
        duplicate_window_s=WINDOW_S,
        explained=skipped,
        by_key=strategy.by_key,
    )


def _written_on(
    strategy: Strategy, origin: Log, onward: Sequence[Log]
) -> dict[tuple[Partition, int], float]:
    """When records left their topic: exactly, where the topics that they went to tell the time."""
    if strategy.timed:
        return letters.written_on(origin, onward[:1], timed=True)
    return letters.written_on(origin, [log for log in onward if log], timed=False)


def _lanes(origin: Log) -> dict[tuple[Partition, int], str]:
    return {
        (tp, offset): stored.key.decode() if stored.key is not None else ""
        for tp, records in origin.items()
        for offset, stored in records.items()
    }


def _partitions(topics: Sequence[str]) -> list[Partition]:
    return [(topic, number) for topic in topics for number in range(PARTITIONS)]


@asynccontextmanager
async def staged(
    bootstrap: str,
    folder: Path,
    strategies: Mapping[str, Strategy],
    *,
    replicas: int = 1,
    session_ms: int = 5000,
) -> AsyncIterator[Stage]:
    """New topics of every strategy, observed; its processes do not outlive the block."""
    run = uuid4().hex[:8]
    plain = [strategy.topic(run) for strategy in strategies.values()]
    timed = [topic.format(run=run) for strategy in strategies.values() for topic in strategy.timed]
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await create_topics(
        bootstrap,
        [NewTopic(topic, PARTITIONS, replicas) for topic in plain]
        + [NewTopic(topic, PARTITIONS, replicas, topic_configs=stamped) for topic in timed],
    )
    by_topic = {strategy.topic(run): strategy for strategy in strategies.values()}

    def make(id: str, number: int, tp: Partition) -> Parcel:
        return parcel(by_topic[tp[0]], id, number, tp)

    observers = _observers(bootstrap, run, strategies)
    async with AsyncExitStack() as stack:
        load = await stack.enter_async_context(Load(bootstrap, _partitions(plain), make, CONFIRM_S))
        for observer in observers.values():
            await stack.enter_async_context(observer.watching())
        stage = Stage(bootstrap, run, folder, strategies, load, observers, session_ms)
        try:
            yield stage
        finally:
            for member in stage.members:
                for life in member.lives:
                    life.end()


def _observers(bootstrap: str, run: str, strategies: Mapping[str, Strategy]) -> dict[str, Observer]:
    observers = {}
    for name, strategy in strategies.items():
        topic, retries = strategy.topic(run), strategy.retry_topics(run)
        observers[name] = Observer(bootstrap, topic, _partitions([topic]), LOOK_EVERY_S)
        if retries:
            group = retry_group(strategy, run)
            observers[group] = Observer(bootstrap, group, _partitions(retries), LOOK_EVERY_S)
    return observers


async def ready(*lives: Life, deadline_s: float = 40.0) -> None:
    """Wait until every process has joined all its groups."""
    for life in lives:
        await life.probe_shows("/health/started", 200, deadline_s)


async def not_sooner_than(t: float) -> None:
    """Wait until *t* has passed: how long a fault lasts is part of the scenario."""
    await asyncio.sleep(max(0.0, t - time.time()))
