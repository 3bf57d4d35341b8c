"""A group of members under load, each of which is restarted once, one after the other."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory

from benchmarks import topic
from benchmarks.peers.processes import FailedError, Member, lifeline
from benchmarks.rebalances import homes
from benchmarks.rebalances.diary import Handled, entries, has_handled
from benchmarks.rebalances.judge import RestartVerdict, judged
from benchmarks.rebalances.load import SteadyLoad
from benchmarks.rebalances.plan import (
    HANDLER_S,
    MEMBERS,
    PARTITIONS,
    PER_PARTITION,
    SECONDS,
    Restarted,
)

WORKS_S = 60.0
"""A member that has handled no record so long after its start has failed."""
DRAINS_S = 30.0
"""A record that nobody has handled so long after the end of the load is lost."""
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the scene is.

    Args:
        members: Of the group, at most 26.
        partitions: Of the topic, at most 1,000.
        per_partition: Records a second in each partition.
        seconds: Of load before the first restart, and after each one.
    """

    members: int = MEMBERS
    partitions: int = PARTITIONS
    per_partition: int = PER_PARTITION
    seconds: float = SECONDS

    @property
    def per_second(self) -> int:
        """Records a second over all partitions."""
        return self.partitions * self.per_partition


class RollingRestart:
    """The members, and what they and the load have written."""

    def __init__(
        self, row: Restarted, size: Size, bootstrap: str, folder: Path, stdin: int
    ) -> None:
        self._size = size
        self._bootstrap = bootstrap
        run = uuid.uuid4().hex[:8]
        self._topic = f"rebalances-topic-{run}"
        words = [*homes.command(row), "--bootstrap", bootstrap, "--topic", self._topic]
        words += ["--group", f"rebalances-group-{run}", "--wait", str(HANDLER_S)]
        self._members = [
            Member(name, words, folder, stdin) for name in ascii_lowercase[: size.members]
        ]
        self._load = SteadyLoad(bootstrap, self._topic, size.partitions, size.per_second)

    async def play(self) -> RestartVerdict:
        """Play it, and judge it."""
        await topic.create(self._bootstrap, self._topic, partitions=self._size.partitions)
        try:
            return await self._play()
        finally:
            for member in self._members:
                member.kill()

    async def _play(self) -> RestartVerdict:
        for member in self._members:
            member.start()
        restarts_ns = []
        async with self._load.flowing():
            for member in self._members:
                await self._works(member)
            await asyncio.sleep(self._size.seconds)
            for member in self._members:
                restarts_ns.append(time.time_ns())
                await self._stopped(member)
                member.start()
                await self._works(member)
                await asyncio.sleep(self._size.seconds)
            end_ns = time.time_ns()
        await self._drained()
        asked_at = time.monotonic()
        for member in self._members:
            member.ask_to_stop()
        await self._until(lambda: all(one.has_stopped(asked_at) for one in self._members))
        lives = {path.stem: entries(path.read_bytes()) for path in self._journals()}
        return judged(self._load.sent, lives, restarts_ns, end_ns)

    async def _works(self, member: Member) -> None:
        """Wait until the present process of *member* has handled a record.

        Raises:
            FailedError: A member has ended by itself, or the time is over.
        """
        journal = member.journals[-1]
        until = time.monotonic() + WORKS_S
        while not (journal.exists() and has_handled(journal.read_bytes())):
            for one in self._members:
                one.check()
            if time.monotonic() > until:
                raise FailedError(
                    f"{member.name} handled no record in {WORKS_S:g} s: {member.said()}"
                )
            await asyncio.sleep(_LOOK_S)

    async def _stopped(self, member: Member) -> None:
        asked_at = time.monotonic()
        member.ask_to_stop()
        await self._until(lambda: member.has_stopped(asked_at))
        if member.killed_at_stop:
            raise FailedError(f"{member.name} did not stop in time: {member.said()}")

    async def _drained(self) -> None:
        """Wait until all is handled, for a while."""
        until = time.monotonic() + DRAINS_S
        await self._until(
            lambda: self._handled() >= len(self._load.sent) or time.monotonic() > until,
            every_s=0.5,
        )

    async def _until(self, holds: Callable[[], bool], every_s: float = _LOOK_S) -> None:
        while not holds():  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(every_s)

    def _journals(self) -> list[Path]:
        return [one for member in self._members for one in member.journals if one.exists()]

    def _handled(self) -> int:
        """How many records somebody has handled, each counted once."""
        places = {
            (entry.partition, entry.offset)
            for journal in self._journals()
            for entry in entries(journal.read_bytes())
            if isinstance(entry, Handled)
        }
        return len(places)


async def played(row: Restarted, size: Size, bootstrap: str) -> RestartVerdict:
    """Play the scene of a contender.

    Raises:
        FailedError: A member ended by itself, did not work in time, or did not stop in time.
    """
    with TemporaryDirectory(prefix="rebalances-") as folder, lifeline() as stdin:
        return await RollingRestart(row, size, bootstrap, Path(folder), stdin).play()
