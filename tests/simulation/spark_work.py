"""The Spark function of an application: looks at the rows, and says what its job does over time."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.checker import Folder
from tests.simulation.fake_spark import Ending, FakeFrame, Row, Script, ScriptedError
from tests.simulation.history import Partition
from tests.simulation.scenario import Load

if TYPE_CHECKING:
    from tests.simulation.member import Member

LATE_S = (0.0, 0.0, 0.05, 0.3, 1.2)
NOBODYS = Load("nobody's", 0.0, 0, None, "quick", 0, 0.0)
"""Of a row that was never produced."""
ONCE, ALWAYS = 1, 10**9


class Read(NamedTuple):
    """A row, what was drawn for its record, and which time this is."""

    row: Row
    load: Load
    time: int


class SparkWork:
    """Runs of one application's Spark function.

    Its sink has a folder for each range id. A run takes away those that it supersedes, writes parts
    of its own before it is through, and the whole at the end.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._world = member.world

    def function(self, df: FakeFrame, batch: Any) -> None:
        """What the application decorates."""
        world = self._world
        call = world.next_call()
        loads = [
            world.loads[json.loads(row.value)["id"]] if row.value else NOBODYS for row in df.rows
        ]
        reads = [
            Read(row, load, world.count_delivery(load.id))
            for row, load in zip(df.rows, loads, strict=True)
        ]
        supersedes = tuple(batch.supersedes)
        if supersedes:
            world.bite("superseded")
        for one in batch.ranges:
            self._note(
                "run",
                (one.topic, one.partition),
                one.start,
                one.id,
                call,
                batch.attempt,
                until=one.until,
                ids=supersedes,
            )
        for read in reads:
            self._note("begin", read.row.tp, read.row.offset, read.load.id, call, batch.attempt)
        ending, rejected = self._ending(reads)
        batch.spark.play(self._script(batch, reads, rejected, ending, call))
        if rejected:
            batch.reject(
                [(read.row.tp[0], read.row.tp[1], read.row.offset) for read in rejected], "bad"
            )
        if ending in ("bad", "code", "worker"):
            raise ScriptedError(ending)

    def _note(
        self, kind: str, tp: Partition, offset: int, note: str, call: int, attempt: int, **more: Any
    ) -> None:
        self._member.note(kind, tp=tp, offset=offset, note=note, call=call, attempt=attempt, **more)

    def _ending(self, reads: Sequence[Read]) -> tuple[Ending, list[Read]]:
        """How the run ends, and which rows it rejects."""
        fatal = self._world.scenario.settings["failure_strategy"] == "fail"
        rejects = self._world.scenario.rejects
        lasting = ONCE if fatal else ALWAYS
        hangs = 0 if self._world.healed.is_set() else ONCE
        kinds = {
            ("kills", lasting): "kills",
            ("stuck", hangs): "hangs",
            ("deaf", hangs): "hangs",
            ("worker", lasting): "worker",
            ("breaks", ALWAYS): "code",
        }
        for (behaviour, times), ending in kinds.items():
            if any(read.load.behaviour == behaviour and read.time <= times for read in reads):
                return ending, []  # type: ignore[return-value]
        flaky = [
            read
            for read in reads
            if read.load.behaviour == "flaky" and read.time <= read.load.times
        ]
        bad = [read for read in reads if read.load.behaviour == "bad"]
        if flaky or (bad and not rejects):
            return "bad", []
        return "ok", bad

    def _script(
        self, batch: Any, reads: Sequence[Read], rejected: list[Read], ending: Ending, call: int
    ) -> Script:
        dice = random.Random(f"script {self._world.scenario.seed} {call}")
        takes_s = max(0.02, *(_takes_s(read) for read in reads)) if reads else 0.02
        good = [read.row for read in reads if read not in rejected]
        deaf = any(read.load.behaviour == "deaf" and read.time <= ONCE for read in reads)
        writes_first = ending not in ("bad", "code") or (
            self._world.scenario.bisects and dice.random() < 0.5
        )
        half_way = dice.choice([0.0, 0.3, 0.9, 1.0]) * takes_s

        def write(share: float) -> None:
            for one in batch.ranges:
                tp = one.topic, one.partition
                own = [
                    (row.tp, row.offset)
                    for row in good
                    if row.tp == tp and one.start <= row.offset < one.until
                ]
                self._world.sink[one.id] = Folder(frozenset(own[: round(share * len(own))]), call)
            self._wrote(call)

        def clear() -> None:
            for id in batch.supersedes:
                self._world.sink.pop(id, None)
            self._member.note("effect", call=call, note="clear")

        steps = [(0.0, clear)]
        if writes_first:
            steps += [(half_way / 2, lambda: write(0.5)), (half_way / 2, lambda: write(1.0))]
        steps.append((takes_s - (half_way if writes_first else 0.0), lambda: None))
        late_s = inf if deaf else dice.choice(LATE_S)
        return Script(
            steps, ending, late_s, lambda outcome: self._over(reads, rejected, call, outcome)
        )

    def _wrote(self, call: int) -> None:
        self._member.note("effect", call=call, note="write")
        self._world.wrote(self._member)

    def _over(self, reads: Sequence[Read], rejected: list[Read], call: int, outcome: str) -> None:
        self._member.note("over", call=call, note=outcome)
        for read in reads:
            note = outcome if outcome in ("ok", "cancelled") else "raised"
            if outcome == "ok" and read in rejected:
                note = "failed"
            self._note("end", read.row.tp, read.row.offset, note, call, 1)


def _takes_s(read: Read) -> float:
    if read.load.behaviour == "slow" or (read.load.behaviour == "long" and read.time <= 2):
        return read.load.takes_s
    return 0.0
