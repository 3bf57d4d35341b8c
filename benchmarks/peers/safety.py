"""A group of two members under load: three are killed, then all are restarted twice, and their
journals are judged.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from benchmarks import topic
from benchmarks.peers.homes import command
from benchmarks.peers.journal import Position, lines
from benchmarks.peers.judge import Verdict, judged
from benchmarks.peers.load import Load
from benchmarks.peers.plan import Safety
from benchmarks.peers.processes import FailedError, Member, lifeline

KILLS = 3
RESTARTS = 2
WORKS_S = 45.0
"""A group whose members do not all work again after so long has failed."""
DRAINS_S = 30.0
QUIET_S = 8.0
"""Longer than a session: what nobody has handled by then comes no more."""
BETWEEN_S = 1.5
"""Under load between two disturbances, so that there is something to commit and something to
lose.
"""
_LOOK_S = 0.1


class Scene:
    """The members, and what they have written."""

    def __init__(self, row: Safety, bootstrap: str, folder: Path, stdin: int) -> None:
        self._row = row
        self._bootstrap = bootstrap
        self._folder = folder
        self._stdin = stdin
        self._topic, self._group = (
            f"peers-{word}-{uuid.uuid4().hex[:8]}" for word in ("topic", "group")
        )
        self._members = [self._member(name) for name in ("a", "b")]
        self._load = Load(bootstrap, self._topic, row.per_second)

    def _member(self, name: str) -> Member:
        words = [*command(self._row), "--bootstrap", self._bootstrap, "--topic", self._topic]
        words += ["--group", self._group, "--wait", str(self._row.wait_s)]
        return Member(name, words, self._folder, self._stdin)

    async def play(self) -> Verdict:
        """Play it, and judge it."""
        await topic.create(self._bootstrap, self._topic)
        try:
            return await self._play()
        finally:
            for member in self._members:
                member.kill()

    async def _play(self) -> Verdict:
        for member in self._members:
            member.start()
        async with self._load.flowing():
            await self._all_work("after the start")
            for number in range(KILLS):
                await asyncio.sleep(BETWEEN_S)
                victim = self._members[number % len(self._members)]
                victim.kill()
                victim.start()
                await self._all_work(f"after kill {number + 1}")
            await self._caught_up()
            boundary = {journal: journal.stat().st_size for journal in self._journals()}
            for number in range(RESTARTS * len(self._members)):
                await asyncio.sleep(BETWEEN_S)
                member = self._members[number % len(self._members)]
                await self._stopped(member)
                member.start()
                await self._all_work(f"after restart {number + 1}")
            await asyncio.sleep(BETWEEN_S)
        await self._drained()
        for member in self._members:
            await self._stopped(member)
        committed = await _committed(self._bootstrap, self._topic, self._group)
        in_kills: list[Position] = []
        in_restarts: list[Position] = []
        for journal in self._journals():
            content = journal.read_bytes()
            until = boundary.get(journal, 0)
            in_kills += lines(content[:until])
            in_restarts += lines(content[until:])
        return judged(self._load.sent, in_kills, in_restarts, committed)

    async def _all_work(self, when: str) -> None:
        """Wait until each member has handled a record from now on."""
        marks = {member.name: member.handled() for member in self._members}
        await self._until(
            lambda: all(member.handled() > marks[member.name] for member in self._members),
            WORKS_S,
            f"do not both work {WORKS_S:g} s {when}",
        )

    async def _caught_up(self) -> None:
        """Wait until no more than a second of the load is not handled: what a kill repeats was
        repeated.
        """
        await self._until(
            lambda: self._handled() >= self._load.sent.total() - self._row.per_second,
            WORKS_S,
            f"have not caught up {WORKS_S:g} s after the kills",
        )

    async def _drained(self) -> None:
        """Wait until all is handled, or nothing has come for long."""
        began = seen_at = time.monotonic()
        seen = 0
        while (
            handled := self._handled()
        ) < self._load.sent.total() and time.monotonic() - began < DRAINS_S:
            if handled != seen:
                seen = handled
                seen_at = time.monotonic()
            if time.monotonic() - seen_at > QUIET_S:
                return
            await asyncio.sleep(5 * _LOOK_S)

    async def _stopped(self, member: Member) -> None:
        asked_at = time.monotonic()
        member.ask_to_stop()
        while not member.has_stopped(asked_at):  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(_LOOK_S)

    async def _until(self, holds: Callable[[], bool], limit_s: float, failed: str) -> None:
        began = time.monotonic()
        while not holds():
            for member in self._members:
                member.check()
            if time.monotonic() - began > limit_s:
                said = "; ".join(f"{member.name}: {member.said()}" for member in self._members)
                raise FailedError(f"the members {failed}: {said}")
            await asyncio.sleep(_LOOK_S)

    def _journals(self) -> list[Path]:
        return [one for member in self._members for one in member.journals if one.exists()]

    def _handled(self) -> int:
        """How many records somebody has handled, each counted once."""
        return len(
            {position for journal in self._journals() for position in lines(journal.read_bytes())}
        )


async def _committed(bootstrap: str, name: str, group: str) -> dict[int, int]:
    """Partition -> the position that the group has committed; without those that it has not."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        every = [TopicPartition(name, number) for number in range(topic.PARTITIONS)]
        stored = await admin.list_consumer_group_offsets(group, partitions=every)
    finally:
        await admin.close()
    return {
        one.partition: position.offset for one, position in stored.items() if position.offset >= 0
    }


async def played(row: Safety, bootstrap: str) -> Verdict:
    """Play the scene of a contender.

    Raises:
        FailedError: A member ended by itself, or they did not all work again in time.
    """
    with TemporaryDirectory(prefix="peers-") as folder, lifeline() as stdin:
        return await Scene(row, bootstrap, Path(folder), stdin).play()
