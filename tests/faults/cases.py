"""One table of faults between a service and a three-node Kafka, and how each is played and judged.

Two members under load; the fault hits one of them, or both. :mod:`tests.faults.checker` judges the
histories, the table says what else is promised.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker import Disruption, Place, Rules, check, report
from tests.faults.driver import Life, Member, Parcel, until
from tests.faults.history import Event, Partition
from tests.faults.letters import Log
from tests.faults.observer import read_records
from tests.faults.probes import Probes
from tests.faults.scenario import COMMIT_INTERVAL_S, Scenario, member, new_topic, playing
from tests.faults.wire import NODES, Bite, Fault, Play, ProxiedCluster, coordinator_of, proxied

PARTITIONS = 6
PER_SECOND = 120
SESSION_S = 6.0
LONGEST_HANDLER_S = 0.012
# With the machine busy: a tick that comes late, and its answer.
COMMIT_TAKES_S = 0.7
WINDOW_S = COMMIT_INTERVAL_S + COMMIT_TAKES_S + LONGEST_HANDLER_S
PADDING = "x" * 4000
STAMPED = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault, and what is promised.

    Attributes:
        row: Of docs/faults.md.
        name: What happens.
        fault: Plays it, heals it and returns what it bit.
        both: Both members are hit, else the left one.
        session_s: ``session.timeout.ms`` of the members.
        outlives_session: The session of a member that is hit ends; None: it may. Only then, and
            only what it did until its session was over by its own clock, may be repeated; only then
            is there a rebalance.
        unready: Readiness of a member that is hit goes red meanwhile; None: it may.
        recovers_s: From the end of the fault until every partition is worked on and every member is
            ready.
        waits_s: The longest that a record waits, since a broker has it, where the fault has nothing
            to do with it.
        moves_s: The same, in the partitions that it has to do with: another node can lead them
            meanwhile.
        away_from_coordinator: No partition is led by the node that coordinates the group.
        padded: Records of 4 KB.
        confirm_s: How long the load waits for a confirmation, less half a minute: longer than
            nobody can write, and short enough that a node that is frozen does not hold up the load.
    """

    row: str
    name: str
    fault: Fault
    both: bool = False
    session_s: float = SESSION_S
    outlives_session: bool | None = False
    unready: bool | None = None
    recovers_s: float = 15.0
    waits_s: float | None = None
    moves_s: float | None = None
    away_from_coordinator: bool = False
    padded: bool = False
    confirm_s: float = 50.0

    def __str__(self) -> str:
        return f"{self.row} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was seen. ``rebalances`` are those of the right member, from the fault to the
    recovery.
    """

    bite: Bite
    recovered_s: float
    rebalances: int
    unready: bool
    repeated: int
    waited_s: float
    moved_s: float
    broken: str

    def line(self, case: Case) -> str:
        """As a row of Markdown."""
        bite = ", ".join(f"{number:g} {what}" for what, number in self.bite.items())
        return (
            f"| {case} | {bite} | {self.rebalances} | {self.repeated} | {self.recovered_s:.1f} s "
            f"| {self.moved_s:.1f} s | {self.waited_s:.1f} s | {'yes' if self.unready else 'no'} |"
        )


HEAD = "| fault | bit | rebalances | repeated | recovered after | longest wait there | elsewhere | not ready |"


async def play(case: Case, cluster: ProxiedCluster, folder: Path) -> Outcome:
    """Two members under load, the fault, and what came of it."""
    async with _members(case, cluster, folder) as it:
        scenario = it.scenario
        async with scenario.load.flowing(PER_SECOND):
            await _busy(it)
            async with Probes(it.left).watching() as watched:
                fault_at = time.time()
                bite = await case.fault(it)
                healed_at = time.time()
                await _recovered(it, healed_at, case.recovers_s)
            recovered_s = time.time() - healed_at
            rebalances = sum(one.kind == "assigned" and one.t > fault_at for one in it.right.events)
        await finish(scenario)
        for life in (it.left, it.right) if case.both else (it.left,):
            if case.outlives_session is not False:
                scenario.disruptions.append(
                    Disruption(life.name, fault_at, fault_at + case.session_s + WINDOW_S)
                )
        evidence = await scenario.evidence()
        log = await read_records(cluster.past_the_proxies, scenario.partitions)
    rules = Rules(ordered=True, duplicate_window_s=WINDOW_S)
    led = {tp for tp in scenario.partitions if it.leads[tp] in it.victims}
    others = set(scenario.partitions) - led
    return Outcome(
        bite=bite,
        recovered_s=recovered_s,
        rebalances=rebalances,
        unready=any(look.ready != 200 for look in watched.looks if fault_at < look.t < healed_at),
        repeated=_repeated(evidence.events),
        waited_s=_longest_wait(evidence.events, log, others, fault_at, healed_at),
        moved_s=_longest_wait(evidence.events, log, led, fault_at, healed_at),
        broken=report(check(evidence, rules)),
    )


def assert_kept(case: Case, seen: Outcome) -> None:
    """The fault happened, and every promise was kept."""
    print(f"\n{HEAD}\n{seen.line(case)}")
    assert seen.bite and all(seen.bite.values()), f"the fault did not happen: {seen.bite}"
    assert not seen.broken, seen.broken
    assert case.outlives_session in (None, bool(seen.rebalances)), seen
    assert case.unready in (None, seen.unready), seen
    assert case.waits_s is None or seen.waited_s <= case.waits_s, seen
    assert case.moves_s is None or seen.moved_s <= case.moves_s, seen
    if case.outlives_session is False:
        assert seen.repeated == 0, seen


@asynccontextmanager
async def _members(case: Case, cluster: ProxiedCluster, folder: Path) -> AsyncIterator[Play]:
    """Both members, ready."""
    topic, direct = new_topic(), cluster.past_the_proxies
    coordinator = await coordinator_of(direct, topic)
    replicas = _replicas(case, coordinator)
    async with (
        proxied(cluster) as proxies,
        playing(
            direct,
            folder,
            PARTITIONS,
            topic=topic,
            replicas=replicas,
            make=_parcel(case),
            confirm_s=case.confirm_s,
            config=STAMPED,
        ) as scenario,
    ):
        left = _member(case, scenario, "left", cluster.bootstrap_servers).start()
        right = _member(
            case, scenario, "right", cluster.bootstrap_servers if case.both else direct
        ).start()
        for life in (left, right):
            await life.ready(60)
        leads = {tp: nodes[0] for tp, nodes in zip(scenario.partitions, replicas, strict=True)}
        yield Play(cluster, proxies, scenario, coordinator, leads, left, right)


def _member(case: Case, scenario: Scenario, name: str, bootstrap: str) -> Member:
    options = ("--latency", "0.001", str(LONGEST_HANDLER_S))
    channel = 'ordering = "partition"\ndrain_timeout = "10s"'
    if case.session_s != SESSION_S:
        # With the consumer protocol the session is that of the broker.
        channel += '\ngroup_protocol = "classic"'
    session_ms = int(case.session_s * 1000)
    return member(
        scenario, name, channel=channel, options=options, session_ms=session_ms, bootstrap=bootstrap
    )


def _parcel(case: Case) -> Callable[[str, int, Partition], Parcel]:
    def make(id: str, number: int, tp: Partition) -> Parcel:
        padding = PADDING if case.padded else ""
        return Parcel(json.dumps({"id": id, "do": "work", "padding": padding}).encode())

    return make


def _leaders(case: Case, coordinator: int) -> list[int]:
    return [node for node in NODES if not (case.away_from_coordinator and node == coordinator)]


def _replicas(case: Case, coordinator: int) -> list[list[int]]:
    leaders = _leaders(case, coordinator)
    first = [leaders[number % len(leaders)] for number in range(PARTITIONS)]
    return [[leader, *(node for node in NODES if node != leader)] for leader in first]


async def _busy(it: Play) -> None:
    """Both are at work on all of their partitions."""

    def is_busy() -> bool:
        return all(
            life.count("end") > 100
            and owned(life) <= {one.tp for one in life.events if one.kind == "end"}
            for life in (it.left, it.right)
        )

    await until(is_busy, 60, "both members work", lambda: f"{it.left.tail()}\n{it.right.tail()}")


def owned(life: Life) -> set[Partition]:
    """The partitions of a member, by its own history. An eager rebalance takes all of them away
    first, any other one names what comes and goes.
    """
    given: set[Partition] = set()
    for event in life.events:
        if event.kind == "assigned":
            given |= set(event.partitions)
        elif event.kind == "revoked":
            given -= set(event.partitions)
    return given


async def _recovered(it: Play, healed_at: float, deadline_s: float) -> None:
    """Each partition is worked on, by whoever owns it, and all who own some are ready."""

    def is_worked_on() -> bool:
        done = {one.tp for one in it.scenario.events if one.kind == "end" and one.t > healed_at}
        return (
            done == set(it.scenario.partitions) and bool(owned(it.left)) and bool(owned(it.right))
        )

    give_up = time.monotonic() + deadline_s
    said = lambda: f"{owned(it.left)} {owned(it.right)} {it.left.tail()}\n{it.right.tail()}"  # noqa: E731
    await until(
        is_worked_on, deadline_s, "every partition is worked on, and both members have some", said
    )
    for life in (it.left, it.right):
        await life.probe_shows("/health/ready", 200, max(1.0, give_up - time.monotonic()))
        assert (await life.health("/health/live"))[0] == 200


async def finish(scenario: Scenario) -> None:
    """Wait until everything is committed, and stop the members."""
    await until(scenario.all_is_committed, 90, f"all is committed, now {scenario.observer.latest}")
    for one in scenario.members:
        one.life.send(signal.SIGTERM)
    for one in scenario.members:
        assert await one.life.exited(20) == 0, one.life.tail()


def _repeated(events: Iterable[Event]) -> int:
    begun = [(one.tp, one.offset) for one in events if one.kind == "begin"]
    return len(begun) - len(set(begun))


def _longest_wait(
    events: Iterable[Event], log: Log, partitions: set[Partition], start: float, end: float
) -> float:
    """From when a broker had a record of these partitions, between two times, until its handler was
    called; 0: none.
    """
    begun: dict[Place, float] = {}
    for one in sorted(events, key=lambda one: one.t):
        if one.kind == "begin":
            begun.setdefault((one.tp, one.offset), one.t)
    waits = [
        begun[tp, offset] - stored.t
        for tp in partitions
        for offset, stored in log[tp].items()
        if start < stored.t < end and (tp, offset) in begun
    ]
    return max(waits, default=0.0)
