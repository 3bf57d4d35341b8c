"""What soak and chaos share: topics, load, members, an observer, and the verdict on a long run."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal
from uuid import uuid4

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.faults import letters
from tests.faults.checker import Commit, Disruption, Evidence, Place, Rules, Violation, check, lost
from tests.faults.driver import (
    Launch,
    Life,
    Load,
    Member,
    Parcel,
    create_topics,
    free_port,
    started_afresh,
)
from tests.faults.history import Event, Partition
from tests.faults.observer import (
    ID_HEADER,
    OFFSETS_TOPIC,
    Observer,
    id_log,
    read_group_logs,
    read_log_ends,
    read_records,
)
from tests.faults.owners import GroupLog, left_behind
from tests.faults.repeats import too_many_repeated
from tests.faults.soak_service import SLOW_S

SERVICE = "tests.faults.soak_service"
COMMIT_INTERVAL_S = 0.5
# With both cores busy: a tick that comes late, and its answer.
COMMIT_TAKES_S = 1.0
WINDOW_S = COMMIT_INTERVAL_S + COMMIT_TAKES_S + SLOW_S
MAX_IN_FLIGHT = 64
MAX_UNCOMMITTED = 100
CONCURRENCY = 16
# By one kill: what is settled and not committed, and what is in flight.
MOST_REPEATED = MAX_UNCOMMITTED + MAX_IN_FLIGHT
PARTITIONS = 12
CONFIRM_S = 120.0
STOPPED_IN_S = 20.0
DRAINED_IN_S = 180.0
# Number of a record, modulo 1,000 -> what it asks for.
ASKED = {17: "fail", 353: "unreadable", 691: "slow"}

# Of the members of a group, each of which may have another one.
Protocol = Literal["classic", "consumer"]
PROTOCOLS: dict[str, tuple[Protocol, ...]] = {
    "classic": ("classic",),
    "consumer": ("consumer",),
    "both": ("consumer", "classic"),
}
"""What ``--protocol`` takes -> the protocols of members, in turn: each time that a member starts
again it has the next one.
"""

CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"

[incoming.orders]
topic = "{topic}"
group_id = "{topic}"
"client.id" = "{name}"
auto_offset_reset = "earliest"
value_deserializer = "json"
ordering = "partition"
concurrency = {concurrency}
commit_interval = "{interval}s"
max_in_flight = {max_in_flight}
max_uncommitted = {max_uncommitted}
drain_timeout = "10s"
failure_strategy = "dead-letter-queue"
dead_letter_queue.topic = "{topic}-dead"
group_protocol = "{protocol}"
"session.timeout.ms" = {session_ms}
"heartbeat.interval.ms" = 500

[http]
port = {port}
"""


def parcel(id: str, number: int, tp: Partition) -> Parcel:
    """A record of a round: most ask for work, some fail, some are slow, some cannot be read."""
    asked = ASKED.get((number * 7 + tp[1] * 31) % 1000, "work")
    value = (
        b"\xff\xfe no json"
        if asked == "unreadable"
        else json.dumps({"id": id, "do": asked}).encode()
    )
    return Parcel(value, None, ((ID_HEADER, id.encode()),))


@dataclass
class Ground:
    """A topic, its group and its dead letters on one cluster, and everything that happens there.

    Attributes:
        bootstrap: Where load, observer and judge find the brokers.
        protocols: Of the members, in turn.
        disruptions: What was done to processes, for the checker.
        failed: What somebody has waited for in vain.
    """

    bootstrap: str
    topic: str
    folder: Path
    load: Load
    observer: Observer
    session_s: float
    protocols: Sequence[Protocol]
    members: list[Member] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    failed: list[Violation] = field(default_factory=list)

    @property
    def partitions(self) -> list[Partition]:
        return partitions_of(self.topic)

    @property
    def lives(self) -> list[Life]:
        """Every process of every member."""
        return [life for member in self.members for life in member.lives]

    def running(self) -> list[Life]:
        """The latest process of each member that has one."""
        return [member.life for member in self.members if member.lives]

    @property
    def events(self) -> list[Event]:
        """The histories of all processes up to now."""
        return [event for life in self.lives for event in life.events]

    def config(self, name: str, port: int, bootstrap: str, protocol: Protocol) -> str:
        """The TOML of a member."""
        return CONFIG.format(
            bootstrap=bootstrap,
            protocol=protocol,
            topic=self.topic,
            name=name,
            interval=COMMIT_INTERVAL_S,
            concurrency=CONCURRENCY,
            max_in_flight=MAX_IN_FLIGHT,
            max_uncommitted=MAX_UNCOMMITTED,
            session_ms=int(self.session_s * 1000),
            port=port,
        )

    def member(self, name: str, bootstrap: str, launch: Launch = started_afresh) -> Member:
        """A member that finds the brokers there, not started yet."""
        port = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        protocol = self.protocols[len(self.members) % len(self.protocols)]
        text = self.config(name, port, bootstrap, protocol)
        made = Member(name, self.folder, text, port, SERVICE, launch=launch)
        self.members.append(made)
        return made

    def start_again(self, member: Member) -> Life:
        """Start the next process of a member, with the protocol that follows its last one."""
        if len(self.protocols) > 1:
            first, second = (f'group_protocol = "{one}"' for one in self.protocols)
            old, new = (first, second) if first in member.config else (second, first)
            member.config = member.config.replace(old, new)
        return member.start()

    def tails(self) -> str:
        """The end of what each member has printed."""
        return "\n".join(member.life.tail() for member in self.members)

    async def in_sync(self) -> bool:
        """Whether each partition of the topic, its dead letters and the groups' own topic has all
        replicas.
        """
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=2000)
        try:
            async with asyncio.timeout(3):
                await admin.start()
                topics = await admin.describe_topics(
                    [self.topic, dead_letters(self.topic), OFFSETS_TOPIC]
                )
        except (KafkaError, TimeoutError):
            return False
        finally:
            await admin.close()
        return all(
            one["leader"] >= 0 and len(one["isr"]) == len(one["replicas"])
            for it in topics
            for one in it["partitions"]
        )

    async def drained(self) -> None:
        """Wait until the group has committed all that is in the log; if it does not, the judge says
        what is left.
        """
        ends = await read_log_ends(self.bootstrap, self.partitions)
        give_up = time.monotonic() + DRAINED_IN_S
        while any(self.observer.committed(tp) < end for tp, end in ends.items() if end):
            if time.monotonic() > give_up:
                return
            await asyncio.sleep(0.2)

    async def stopped(self) -> None:
        """Stop every member; one that does not end in order has broken a promise."""
        for life in self.running():
            if life.exit_code is None:
                life.send(signal.SIGTERM)
        for life in self.running():
            with self.told("the stop"):
                assert await life.exited(STOPPED_IN_S) == 0, life.tail()

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Keep what goes wrong in the block for the verdict: what hours have shown must not be lost
        with it.
        """
        try:
            yield
        except AssertionError as error:
            self.failed.append(Violation("I3", f"{what} at {time.strftime('%H:%M:%S')}: {error}"))

    async def judged(self) -> Verdict:
        """All that can be known of the run, and every promise that was broken."""
        log = await read_records(self.bootstrap, self.partitions)
        dead = await read_records(self.bootstrap, [(dead_letters(self.topic), 0)])
        group = (await read_group_logs(self.bootstrap)).get(self.topic, [])
        events = self.events
        disruptions = [*self.disruptions, *self._left_behind(group, events)]
        evidence = Evidence(
            events=events,
            commits=[
                *self.observer.commits,
                *(entry for entry in group if isinstance(entry, Commit)),
            ],
            log=id_log(log),
            log_end=await read_log_ends(self.bootstrap, self.partitions),
            sent=self.load.sent,
            maybe=frozenset(self.load.maybe),
            disruptions=disruptions,
            letters=letters.written_on(log, [dead], timed=True),
        )
        rules = Rules(
            ordered=True, releases=frozenset({"ok", "failed"}), duplicate_window_s=WINDOW_S
        )
        found = [*check(evidence, rules), *letters.unfaithful(log, dead)]
        found += too_many_repeated(evidence.events, disruptions, MOST_REPEATED)
        return Verdict(evidence, [*self.failed, *found], group)

    def _left_behind(self, group: GroupLog, events: Sequence[Event]) -> Iterator[Disruption]:
        """What happened to processes that a conversion of their group has left behind."""
        started = {event.process: event.t for event in events if event.kind == "start"}
        lives = {member.name: [life.name for life in member.lives] for member in self.members}
        for it in left_behind(group):
            running = [life for life in lives[it.client] if started.get(life, inf) <= it.t]
            if running:
                # It does not know of it before its next heartbeat.
                yield Disruption(running[-1], it.t, it.t + self.session_s)


@dataclass
class Verdict:
    """What is known of a run, what was broken, and what the coordinator has stored of the group."""

    evidence: Evidence
    violations: list[Violation]
    group: GroupLog

    @property
    def lost(self) -> list[Place]:
        """What the broker had confirmed and nobody settled."""
        return lost(self.evidence, Rules())


def partitions_of(topic: str) -> list[Partition]:
    return [(topic, number) for number in range(PARTITIONS)]


def dead_letters(topic: str) -> str:
    return f"{topic}-dead"


@asynccontextmanager
async def staged(
    bootstrap: str,
    folder: Path,
    session_s: float,
    replicas: int,
    protocols: Sequence[Protocol] = PROTOCOLS["both"],
) -> AsyncIterator[Ground]:
    """New topics, whose group is observed; its processes do not outlive the block."""
    topic = f"orders-{uuid4().hex[:8]}"
    stamped = {"message.timestamp.type": "LogAppendTime"}
    dead = NewTopic(dead_letters(topic), 1, replicas, topic_configs=stamped)
    await create_topics(
        bootstrap, [NewTopic(topic, PARTITIONS, replicas, topic_configs=stamped), dead]
    )
    observer = Observer(bootstrap, topic, partitions_of(topic))
    async with (
        Load(bootstrap, partitions_of(topic), parcel, CONFIRM_S) as load,
        observer.watching(),
    ):
        ground = Ground(bootstrap, topic, folder, load, observer, session_s, protocols)
        try:
            yield ground
        finally:
            for life in ground.lives:
                life.end()


class Watch:
    """Looks at the histories for who owns which partition, and when each was last worked on."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        # Processes that have ended, and whose histories were read to their ends.
        self._over: set[str] = set()
        self._seen: Counter[str] = Counter()
        self._ends: dict[Partition, float] = {}
        self._owned: dict[str, set[Partition]] = {}

    def is_settled(self, t: float) -> bool:
        """Whether every member has a share of the partitions, and each one was worked on after *t*.

        One that was frozen believes to have what others have by now, until it has noticed.
        """
        if not self.all_worked_on_since(t):
            return False
        shares = [self._owned.get(life.name, set()) for life in self._ground.running()]
        return all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == len(
            self._ground.partitions
        )

    def all_worked_on_since(self, t: float) -> bool:
        """Whether every partition has seen the end of a record after *t*."""
        for life in self._ground.lives:
            if life.name not in self._over:
                self._look(life)
        return all(self._ends.get(tp, 0.0) > t for tp in self._ground.partitions)

    def _look(self, life: Life) -> None:
        is_over = life.exit_code is not None
        events = life.events
        for event in events[self._seen[life.name] :]:
            if event.kind == "end":
                self._ends[event.tp] = max(self._ends.get(event.tp, 0.0), event.t)
            elif event.kind == "assigned":
                # An eager rebalance has taken all of them away before.
                self._owned[life.name] = self._owned.get(life.name, set()) | set(event.partitions)
            elif event.kind == "revoked":
                self._owned[life.name] = self._owned.get(life.name, set()) - set(event.partitions)
        self._seen[life.name] = len(events)
        if is_over:
            self._over.add(life.name)
