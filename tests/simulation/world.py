"""Plays a scenario: the broker, the applications, the records, the faults, the healing; and gathers
what happened.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.records import TopicPartition
from reactive_kafka.testing import FakeClock
from tests.simulation.checker import (
    Case,
    Folder,
    Headers,
    Letter,
    Place,
    Promise,
    Said,
    Stored,
    Tally,
)
from tests.simulation.disturb import Disturbances
from tests.simulation.fake_store import Database
from tests.simulation.held import held, timers
from tests.simulation.history import Event, Kind, Partition
from tests.simulation.member import Member, encode
from tests.simulation.odd_draw import CANCEL_THEIR_TASK, RATES
from tests.simulation.offset_rules import done_since_seeks
from tests.simulation.scenario import (
    ANSWER_TIMEOUT_S,
    DELAYED_GROUP,
    GROUP,
    INCREMENTAL,
    LETTERS,
    RETRY_TOPICS,
    TOPIC,
    Load,
    Scenario,
)
from tests.simulation.seam import REQUEST, place_of, without_place
from tests.simulation.several_draw import is_filtered, with_header

INNOCENT = frozenset({"quick", "yields", "slow"})
"""Behaviours of records with which no Spark job ever fails."""
WITH_NOTE = frozenset({"end", "answer", "assigned", "member", "over", "ready"})
"""Events that are counted by what their note says."""
CUT_OFF_S = 10.0
LOOK_S = 0.25
PATIENCE = 40
"""How often an application that is to come back by itself is seen dead before it is started
again.
"""
DRAIN_S = 240.0
"""Virtual time in which everything but long work must be done after the last fault."""
A_FAILED_SEND_S = 10.0
"""So much more for each send that is to fail: the next one may wait so long."""
A_KILLER_S = 30.0
"""So much more for each record that ends the driver of its job: for the jobs that run again, each
on a new Spark.
"""


@dataclass(slots=True)
class Outcome:
    """A run that is over."""

    scenario: Scenario
    case: Case
    bites: Counter[str] = field(default_factory=Counter)


class World:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, clock: FakeClock, *, can_restart: bool) -> None:
        self.can_restart = can_restart
        self.scenario = scenario
        self.clock = clock
        self.broker = MemoryBroker(clock, partitions=scenario.partitions)
        self.broker.answer_timeout_s = ANSWER_TIMEOUT_S
        self.events: list[Event] = []
        self.bites: Counter[str] = Counter()
        self.loads = {load.id: load for load in scenario.loads}
        self.members: list[Member] = []
        self.healed = asyncio.Event()
        # Applications that leave, and another one joins then.
        self._to_join = 0
        self.log: dict[Partition, dict[int, Stored]] = {}
        self.partitions = scenario.partitions
        self.sink: dict[str, Folder] = {}
        self.database = Database(self) if scenario.store else None
        self.next_write: asyncio.Future[Member] | None = None
        self._is_over = False
        self._names = 0
        self._calls = 0
        self._requests = 0
        self._handler_calls = 0
        self._losses = 0
        # Of the group, when somebody looked.
        self._protocol = ""
        self._deliveries: Counter[str] = Counter()
        self._at_calls: dict[int, list[Callable[[], None]]] = {}
        self._owners: dict[Partition, tuple[str, int, int]] = {}
        self.letters: list[Letter] = []
        self.said: list[Said] = []
        self._ended: set[Place] = set()
        # So many events, for records that have ended.
        self._looked_at = 0
        # On their way.
        self._sends = 0
        # Since somebody looked.
        self._were_sent = False
        self._answered: set[int] = set()
        # Copies in other topics that were noted.
        self._seen: Counter[Partition] = Counter()
        self._began = clock.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors: list[BaseException] = []
        self.dice = random.Random(f"world {scenario.seed}")

    # -- the history

    def note(self, kind: Any, who: str = "", *, tp: Any = ("", -1), **details: Any) -> None:
        """Add an event."""
        tp = tuple(tp)
        if kind == "assigned":
            generation = details["offset"]
            came_back = self._owners.get(tp) == (who, details["client"], generation - 1)
            self._owners[tp] = who, details["client"], generation
            details["note"] = "back" if came_back else ""
        elif kind == "answer":
            self._answered.add(details["call"])
        elif kind == "begin" and details["attempt"] == 1 and self._deliveries[details["note"]] > 1:
            self.bite("begun again")
        self.look_at_copies()
        at = round(self.clock.monotonic() - self._began, 6)
        self.events.append(Event(at, kind, who, tp, **details))
        self.bite(f"{kind} {details.get('note', '')}" if kind in WITH_NOTE else kind)

    def say(self, who: str, event: Any) -> None:
        """Note an event of an application's, as it was then."""
        at = round(self.clock.monotonic() - self._began, 6)
        fields = {name: _plain(getattr(event, name)) for name in type(event).__dataclass_fields__}
        self.said.append(Said(at, len(self.events), who, type(event).__name__, fields))

    def bite(self, what: str) -> None:
        """Count something that really happened."""
        self.bites[what] += 1

    def look_at_copies(self) -> None:
        """Note what has come into dead-letter and retry topics."""
        if not (self._sends or self._were_sent):
            return
        self._were_sent = False
        there = self.broker.topics()
        # In the order in which a record goes through them.
        for topic in (*RETRY_TOPICS, LETTERS):
            for number in range(there.get(topic, 0)):
                tp = topic, number
                if self.broker.end(TopicPartition(*tp)) == self._seen[tp]:
                    continue
                for record in self.broker.log(TopicPartition(*tp))[self._seen[tp] :]:
                    self._note_copy(tp, record)
                self._seen[tp] = self.broker.end(TopicPartition(*tp))

    def sent(self, answer: asyncio.Future[Any]) -> None:
        """An application writes a record; it is stored by the time of the answer, or never."""

        def over(_: object) -> None:
            self._sends -= 1
            self._were_sent = True

        self._were_sent = True
        if not answer.done():
            self._sends += 1
            answer.add_done_callback(over)

    def _note_copy(self, tp: Partition, record: Any) -> None:
        """A copy ends the record that it was made of: the original, or an earlier copy of the same
        original.
        """
        headers = without_place(record.headers)
        kind: Kind = "letter" if tp[0] == LETTERS else "copy"
        prefix = "dead-letter" if kind == "letter" else "delayed-retry"
        origin = _origin(headers, prefix)
        ended = place_of(record.headers) or origin
        at = round(self.clock.monotonic() - self._began, 6)
        self.events.append(Event(at, kind, "", *ended, note=f"is {tp[0]}-{tp[1]}@{record.offset}"))
        written = Letter(len(self.events) - 1, ended, prefix, record.value, record.key, headers)
        self.letters.append(written)
        self.bite(kind)
        # Else of offsets that were lost, or never held a record.
        original = self.log[origin[0]].get(origin[1]) if kind == "copy" else None
        if original is not None:
            self.log.setdefault(tp, {})[record.offset] = original
            if self._is_over and not promise(self.scenario).commits:
                # What is read again while the last ones leave, where nothing is committed, nobody
                # has to handle.
                self.events.append(Event(at, "compacted", "", tp, record.offset, "leaving"))

    def _committed(self, entry: CommitEntry) -> None:
        if REQUEST.get() in self._answered:
            self.bite("commit late")
        for tp, stored in sorted(entry.offsets.items()):
            kind: Kind = "beside" if self.is_beside(tp) else "commit"
            self.note(kind, tp=tp, offset=stored.offset, call=REQUEST.get(), text=stored.metadata)
            if kind == "commit":
                self.note_plans(tp, stored.metadata, REQUEST.get())

    def note_plans(self, tp: Partition, metadata: str, call: int) -> None:
        """Note the plans that were stored beside a position."""
        if metadata.startswith("rk1 ") and metadata.rpartition(" ")[2].startswith("r"):
            self.bite("kept")
        for start, until in plans_in(metadata):
            self.note("planned", tp=tp, offset=start, until=until, call=call)

    def skip(self, member: Member, tp: TopicPartition, offset: int, before: int) -> None:
        """An application goes on at an offset, on purpose; *before*: how long the history was when
        it decided that.
        """
        member.note("reset", tp=tuple(tp), offset=offset, note="seek")
        self.pass_over(member, tp, offset, before)

    def pass_over(self, member: Member, tp: TopicPartition, offset: int, before: int) -> None:
        """Note the records before an offset that nobody is through with: they will not be read."""
        events = self.events[:before]
        done = done_since_seeks(events, promise(self.scenario), tuple(tp), member.who)  # type: ignore[arg-type]
        for one in self.log.get(tp, {}):
            if one < offset and one not in done:
                member.note("skipped", tp=tuple(tp), offset=one)

    # -- counting

    def called(self) -> None:
        """A call between an application and its client: what was to happen at its number happens
        now.
        """
        self._calls += 1
        for act in self._at_calls.pop(self._calls, ()):
            act()

    def at_call(self, number: int, act: Callable[[], None]) -> None:
        self._at_calls.setdefault(number, []).append(act)

    def next_call(self) -> int:
        self._handler_calls += 1
        return self._handler_calls

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def lost(self, who: str) -> None:
        """A member of a mixed group has lost its partitions.

        Its group became classic in an epoch that it had not heard of: the broker refuses what it
        commits, as in a fault.
        """
        self._losses += 1
        note = f"lost #{self._losses}"
        self.note("fault", who, note=note)
        self.note("calm", who, note=note)
        self.bite("lost")

    def wrote(self, member: Member) -> None:
        """A Spark job has written into the sink."""
        if self.next_write is not None and not self.next_write.done() and not member.is_dead:
            self.next_write.set_result(member)

    def deliveries(self, id: str) -> int:
        """How often a handler, or the middleware around it, was called with a record."""
        return self._deliveries[id]

    def count_delivery(self, id: str) -> int:
        self._deliveries[id] += 1
        return self._deliveries[id]

    def spawn(self, job: Any) -> None:
        self.keep(asyncio.create_task(job, name="scenario"))

    def keep(self, task: asyncio.Task[Any]) -> None:
        """The run does not end before the task does, and fails if it does."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.look_at_end)

    def fail(self, error: BaseException) -> None:
        """Something has happened that must not: the run fails."""
        self._errors.append(error)

    def look_at_end(self, task: asyncio.Task[Any]) -> None:
        """A task of the scenario or of an application's own that fails makes the run fail."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)

    # -- where positions are

    def is_beside(self, tp: Partition) -> bool:
        """Whether what Kafka has for a partition is not what counts: that is in the store."""
        return self.database is not None and (tp[0] == TOPIC or tuple(tp) in self.database.rows)

    def _positions(self) -> dict[Partition, int]:
        """partition -> what is stored for it, where it counts."""
        committed = {**self.broker.committed(GROUP), **self.broker.committed(DELAYED_GROUP)}
        found: dict[Partition, int] = {
            tuple(tp): one.offset for tp, one in committed.items() if not self.is_beside(tp)
        }  # type: ignore[misc]
        rows = self.database.rows if self.database is not None else {}
        return found | {tp: row.position for tp, row in rows.items() if row.position is not None}

    # -- playing

    async def play(self) -> Case:
        self.bite(self.scenario.membership)
        self.broker.create_topic(TOPIC, self.partitions)
        self.broker.watch_commits(GROUP, self._committed)
        self.broker.watch_commits(DELAYED_GROUP, self._committed)
        for _ in range(self.scenario.members):
            await self.join()
        disturbances = Disturbances(self)
        supervisor = asyncio.create_task(self._supervise(), name="operator")
        self.spawn(self._produce())
        self.spawn(self._make_gaps())
        for fault in self.scenario.faults:
            self.spawn(disturbances.run(fault))
        await asyncio.sleep(self.scenario.lasts_s)
        # What its call did not come for.
        for number in sorted(self._at_calls):
            for act in self._at_calls.pop(number):
                act()
        await asyncio.gather(*self._tasks)
        await self._heal()
        tallies = await self._drained()
        # A task that ends in one turn of the loop is dropped in the next. What is left behind is
        # there at every look.
        forgotten = self._forgotten()
        for _ in range(3):
            await asyncio.sleep(0)
            forgotten = [one for one in self._forgotten() if one in forgotten]
        self._is_over = True
        if self.scenario.graceful:
            self.bite("graceful")
        await supervisor
        # Somebody may be about to be started again.
        await asyncio.gather(*self._tasks)
        for member in tuple(self.members):
            await self.leave(member)
        await asyncio.gather(*self._tasks)
        if self._errors:
            raise self._errors[0]
        await self.broker.close()
        leaks = sorted(
            task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()
        )
        set_still = [f"timer of {name}" for name in sorted(timers(asyncio.get_running_loop()))]
        return self._case(tuple(tallies), [*leaks, *set_still, *forgotten])

    def _forgotten(self) -> list[str]:
        """Collections of an application at rest that hold tasks which have ended."""
        staying = [member for member in self.members if not member.is_leaving]
        over = held(staying[0].app._run).over if staying else ()
        return [f"{name} holds one that has ended" for name in sorted(over)]

    def _case(self, tallies: Any, leaks: list[str]) -> Case:
        self.look_at_copies()
        beside = {
            tuple(tp): one.offset
            for tp, one in self.broker.committed(GROUP).items()
            if self.is_beside(tp)
        }
        topics = (TOPIC, *RETRY_TOPICS)
        ends = {
            (topic, number): self.broker.end(TopicPartition(topic, number))
            for topic in topics
            for number in range(self.broker.topics().get(topic, 0))
        }
        return Case(
            events=self.events,
            log=self.log,
            log_end=ends,
            committed=self._positions(),
            beside=beside,  # type: ignore[arg-type]
            user=self.database.user if self.database is not None else Counter(),
            promise=promise(self.scenario),
            sink=self.sink,
            innocent=frozenset(
                load.id for load in self.loads.values() if load.behaviour in INNOCENT
            ),
            tallies=tallies,
            leaks=leaks,
            letters=self.letters,
            said=self.said,
        )

    async def join(self) -> Member:
        self._names += 1
        member = Member(self, f"A{self._names}")
        self.members.append(member)
        await member.start()
        return member

    async def leave(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            await member.stop()

    async def _produce(self) -> None:
        for load in sorted(self.scenario.loads, key=lambda load: load.at):
            await self._until(load.at)
            self.produce(load)

    def produce(self, load: Load) -> None:
        tp = TopicPartition(TOPIC, load.partition)
        key = load.key.encode() if load.key is not None else None
        value = encode(load)
        written = self.broker.produce(
            TOPIC, value, key=key, partition=load.partition, headers=load.headers
        )
        stored = Stored(load.id, load.key, load.behaviour != "unreadable", value, load.headers)
        self.log.setdefault(tuple(tp), {})[written.offset] = stored  # type: ignore[arg-type]
        if self._selects_headers and is_filtered(load.id):
            # No member can tell when it skips the record, which it may do from now on.
            self.bite("unselected")
            self.note("compacted", tp=tuple(tp), offset=written.offset, note="filter")

    @property
    def _selects_headers(self) -> bool:
        return self.scenario.filters and self.scenario.selects == "headers"

    async def _make_gaps(self) -> None:
        for gap in sorted(self.scenario.gaps, key=lambda gap: gap.at):
            await self._until(gap.at)
            self.broker.append_markers(TopicPartition(TOPIC, gap.partition), gap.count)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self._began + at - self.clock.monotonic()))

    async def _supervise(self) -> None:
        """Look at the applications, and start those again that are not alive, as whoever runs them
        does.
        """
        while not self._is_over:
            await asyncio.sleep(LOOK_S)
            self._look_at_protocol()
            for member in tuple(self.members):
                if member.is_leaving or member.look() or member.is_restarting:
                    continue
                self.note("health", member.who, note="live DOWN")
                member.looks_down += 1
                if (
                    self.scenario.settings.get("restart") is not None
                    and member.looks_down < PATIENCE
                ):
                    continue
                # Which takes its time, and the others are looked at meanwhile.
                self.spawn(self._start_again(member))

    def _look_at_protocol(self) -> None:
        """Count the conversions of the group."""
        protocol = self.broker._state.group(GROUP).protocol
        if self._protocol not in ("", protocol):
            self.bite(f"became {protocol}")
        self._protocol = protocol

    async def _start_again(self, member: Member) -> None:
        if self.can_restart and self.dice.random() < 0.5:
            await member.restart()
            return
        self._to_join += 1
        try:
            await self.leave(member)
        finally:
            self._to_join -= 1
        await self.join()

    async def _heal(self) -> None:
        """No fault follows, what was held up goes on, and some more records come: progress must be
        seen.
        """
        self.broker.down = False
        if self.database is not None:
            self.database.heal()
        self.note("healed")
        self.healed.set()
        # Two at once would read the same partitions where these are assigned by hand.
        if not self.members and not self._to_join:
            await self.join()
        for number in range(self.scenario.partitions):
            for more in range(2):
                load = Load(f"after{number}.{more}", 0.0, number, None, "yields", 0, 0.0)
                if self._selects_headers:
                    load = with_header(load)
                self.loads[load.id] = load
                self.produce(load)
            if self.dice.random() < 0.4:
                self.broker.append_markers(TopicPartition(TOPIC, number), self.dice.choice([1, 3]))

    async def _drained(self) -> list[Tally]:
        """Wait until everything is done; what the applications say of themselves then."""
        killers = sum(load.behaviour == "kills" for load in self.scenario.loads)
        sends = sum(3 * fault.times for fault in self.scenario.faults if fault.kind == "send-fails")
        # With one handler at a time they run one after the other.
        long_work_s = sum(load.takes_s for load in self.scenario.loads if load.behaviour == "long")
        within_s = DRAIN_S + long_work_s + A_KILLER_S * killers + A_FAILED_SEND_S * sends
        deadline = self.clock.monotonic() + within_s
        while True:
            for member in self.members:
                while member.held:
                    member.ack(*member.held.pop())
            await asyncio.sleep(LOOK_S)
            tallies = [member.tally() for member in self.members if not member.is_leaving]
            if self._is_drained(tallies) or self.clock.monotonic() > deadline:
                return tallies

    def _is_drained(self, tallies: list[Tally]) -> bool:
        self.look_at_copies()
        if (
            any(tally.in_flight or tally.queued or not tally.ready for tally in tallies)
            or not tallies
        ):
            return False
        self._ended.update(
            (event.tp, event.offset) for event in self.events[self._looked_at :] if _ends(event)
        )
        self._looked_at = len(self.events)
        ended = self._ended
        promised = promise(self.scenario)
        if promised.safe and any(
            (tp, offset) not in ended for tp, log in self.log.items() for offset in log
        ):
            return False
        if not promised.commits:
            return True
        positions = self._positions()
        for tp, log in self.log.items():
            end = (
                self.broker.end(TopicPartition(*tp))
                if promised.passes_gaps
                else max(log, default=-1) + 1
            )
            if positions.get(tp, 0) < end:
                return False
        return True


def _plain(value: object) -> object:
    """Partitions as tuples, for the checker shares nothing with the package."""
    if isinstance(value, TopicPartition):
        return tuple(value)
    if isinstance(value, frozenset):
        return frozenset(_plain(one) for one in value)
    return value


def _ends(event: Event) -> bool:
    if event.kind == "end":
        return event.note == "ok"
    return event.kind in ("ignored", "letter", "copy", "compacted", "skipped", "row")


def _origin(pairs: Headers, prefix: str) -> Place:
    """Where the record stood first that a copy was made of, by what the copy says."""
    # Ours come first.
    headers: dict[str, Any] = dict(reversed(pairs))
    topic = headers[f"{prefix}-topic"].decode()
    return (topic, int(headers[f"{prefix}-partition"])), int(headers[f"{prefix}-offset"])


def plans_in(metadata: str) -> Iterator[tuple[int, int]]:
    """The plans in a commit's metadata, as start and until: read here once more, so that a wrong
    writer is seen.
    """
    if not metadata.startswith("rk1 "):
        return
    _, _, _, length, _, rest = metadata.split(" ", 5)
    for plan in rest[: int(length)].split():
        start, until = plan.partition("<")[0].partition("=")[0].split("-")
        yield int(start), int(until)


def promise(scenario: Scenario) -> Promise:
    """What the settings of a scenario promise."""
    settings = scenario.settings
    strategy, mode = settings["commit_strategy"], scenario.mode
    by_hand = mode in ("manual", "iterate")
    ends: Any = "acked" if by_hand else "begun" if settings.get("ack") == "pre" else "handled"
    ends = "written" if scenario.transactions else ends
    limit = settings.get("rate_limit", "")
    rate, rate_by = (limit["rate"], limit["by"]) if isinstance(limit, Mapping) else (limit, "")
    return Promise(
        # The application's own.
        ordering="unordered" if mode == "iterate" else settings.get("ordering", "partition"),
        out_of_order=frozenset(RETRY_TOPICS),
        commits=strategy != "ignore",
        safe=not settings.get("commit_latest_unsafe", False),
        ends=ends,
        passes_gaps=strategy in ("throttled", "checkpoint"),
        window_s=float(settings["commit_interval"]) + 2 * ANSWER_TIMEOUT_S + 1.0,
        tick_s=float(settings["commit_interval"]),
        poison_is_fatal=settings["on_poison"] == "fail",
        spark=scenario.mode == "spark",
        bisects=scenario.bisects,
        patience_s=min(float(settings["drain_timeout"]), CUT_OFF_S),
        counts_offsets=settings.get("spark", {}).get("mode") == "ranges",
        store=scenario.store,
        states=scenario.states,
        strings=_strings(settings) if scenario.strings else None,
        keeps="keep_out_of_order_acks" in settings,
        concurrency=_concurrency(scenario),
        rate=RATES[rate] if rate else 0.0,
        rate_by=rate_by,
        rate_held=int(settings.get("concurrency", 1)) if scenario.slots else 0,
        per_partition=settings.get("concurrency_per_partition", 0),
        jobs=settings.get("spark", {}).get("max_concurrent_jobs", 0),
        window=_window(scenario),
        reads_ahead=settings.get("ordering") == "key" or bool(rate_by),
        poison_cancels=settings["on_poison"] == "dead-letter-queue",
        latest=settings["auto_offset_reset"] == "latest",
        graceful=scenario.graceful,
        incremental=scenario.membership in INCREMENTAL,
        fenced=scenario.membership != "static",
        in_tasks=any(load.odd in CANCEL_THEIR_TASK for load in scenario.loads),
        broadcast="aside" in scenario.several,
        filters=scenario.filters,
        selects_headers=scenario.filters and scenario.selects == "headers",
        limits_attempts="attempt_timeout" in settings,
        max_age_s=float(settings["unprocessed_record_max_age"]),
        backoff_s=float(settings.get("retry", {}).get("max_backoff", 0.0)),
        drain_s=float(settings["drain_timeout"]),
        grace_s=float(settings["revoke_grace"]),
    )


def _concurrency(scenario: Scenario) -> int:
    """How many handlers run at once; 0: nobody counts."""
    if scenario.mode in ("iterate", "spark"):
        return 0
    concurrency = int(scenario.settings["concurrency"])
    return min(concurrency, scenario.slots) if scenario.slots else concurrency


def _window(scenario: Scenario) -> int:
    """A client's share of what may be in flight; 0: what Spark has goes by batches, and what was
    kept is left out.
    """
    settings = scenario.settings
    if scenario.mode == "spark" or "keep_out_of_order_acks" in settings:
        return 0
    return max(1, int(settings["max_in_flight"]) // int(settings.get("consumers", 1)))


def _strings(settings: Mapping[str, Any]) -> Literal["current", "exact"]:
    """Where records are handled in their order, the newest string is that of the last record."""
    in_order = settings.get("ordering", "partition") == "partition"
    return "current" if in_order else settings["offset_metadata_strategy"]


async def play(scenario: Scenario, clock: FakeClock, *, can_restart: bool) -> Outcome:
    """Run a scenario to its end; *can_restart*: failed channels can be started again without the
    application.
    """
    world = World(scenario, clock, can_restart=can_restart)
    case = await world.play()
    return Outcome(scenario, case, world.bites)
