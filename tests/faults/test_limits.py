"""A service at the limits of its machine: memory, descriptors, clients, disks, and processes that
it has forked.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.cases import finish, owned
from tests.faults.checker import Disruption, Rules, check, report
from tests.faults.driver import Life, until
from tests.faults.processes import alive, descendants, kill
from tests.faults.scenario import COMMIT_INTERVAL_S, Scenario, member, playing

MEMORY = Path("/sys/fs/cgroup/memory")
WINDOW_S = COMMIT_INTERVAL_S + 0.7

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long_faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="limits and mounts need root"),
]


async def works(scenario: Scenario, life: Life, records: int = 200) -> None:
    before = life.count("end")
    await until(lambda: life.count("end") > before + records, 40, f"{life.name} works", life.tail)


@contextmanager
def limited(pid: int, headroom: int) -> Iterator[Path]:
    """A process that may take so many bytes more; gives the folder of its control group."""
    group = MEMORY / f"faults-{uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(headroom))
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        group.rmdir()


@pytest.mark.skipif(
    not (MEMORY / "memory.limit_in_bytes").exists(), reason="no memory control groups of version 1"
)
async def test_a_member_that_its_memory_limit_kills_is_as_one_that_was_killed(
    kafka: str, tmp_path: Path
) -> None:
    """Row D9 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        left, right = (member(scenario, name) for name in ("left", "right"))
        async with scenario.load.flowing(200):
            victim, other = left.start(), right.start()
            for life in (victim, other):
                await life.ready()
                await works(scenario, life)
            with limited(victim.pid, headroom=50_000_000) as group:
                eating = time.time()
                for tp in scenario.partitions:
                    await scenario.load.send(tp, "eat")
                assert await victim.exited(20) == -signal.SIGKILL
                assert int((group / "memory.failcnt").read_text()) > 0, "it was not the limit"
            scenario.disruptions.append(Disruption(victim.name, eating, time.time()))
            left.start()
            await left.life.ready()
            await works(scenario, left.life)
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=WINDOW_S))) == ""


async def test_a_child_of_a_handler_keeps_no_member_alive_and_commits_nothing(
    kafka: str, tmp_path: Path
) -> None:
    """Row D11 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        left, right = (member(scenario, name) for name in ("left", "right"))
        async with scenario.load.flowing(200):
            parent, other = left.start(), right.start()
            for life in (parent, other):
                await life.ready()
            for tp in scenario.partitions:
                await scenario.load.send(tp, "fork")
            await until(lambda: descendants(parent.pid), 20, "it has forked", parent.tail)
            await works(scenario, parent)
            children = descendants(parent.pid) + descendants(other.pid)
            begun = [(one.tp, one.offset) for one in scenario.events if one.kind == "begin"]
            before = set(begun)
            assert len(before) == len(begun), "a fork repeats records"
            killed_at = parent.send(signal.SIGKILL)
            assert await parent.exited(5) == -signal.SIGKILL
            scenario.disruptions.append(Disruption(parent.name, killed_at, killed_at))
            assert alive(children), "the child that holds its connections has gone, too"
            await until(lambda: len(owned(other)) == 6, 15, "the other one takes over", other.tail)
            await works(scenario, other)
            for child in alive(children):
                kill(child)
            left.start()
            await left.life.ready()
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=WINDOW_S))) == ""


async def test_a_child_that_comes_back_from_a_handler_ends_and_its_parent_goes_on(
    kafka: str, tmp_path: Path
) -> None:
    """Row D11 of the faults."""
    async with playing(kafka, tmp_path) as scenario:
        service = member(scenario, "service")
        async with scenario.load.flowing(200):
            life = service.start()
            await life.ready()
            await works(scenario, life)
            for tp in scenario.partitions:
                await scenario.load.send(tp, "return")
            came_back = len(scenario.partitions)
            await until(
                lambda: life.log.read_text().count("was forked from") == came_back,
                20,
                "children come back",
                life.tail,
            )
            await works(scenario, life, 600)
            assert not descendants(life.pid), "they have not ended"
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=0.0))) == ""


@contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """A process that can open nothing any more."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    resource.prlimit(
        pid, resource.RLIMIT_NOFILE, (next(n for n in range(soft) if n not in used), hard)
    )
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def seconds_of(pid: int) -> float:
    """CPU time of a process."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


async def test_a_member_without_descriptors_works_on_and_says_so_once(
    kafka: str, tmp_path: Path
) -> None:
    """Row D10 of the faults."""
    async with playing(kafka, tmp_path) as scenario, AsyncExitStack() as stack:
        left = member(scenario, "left")
        async with scenario.load.flowing(100):
            life = left.start()
            await life.ready()
            await works(scenario, life)
            told, seconds = len(life.log.read_text().splitlines()), seconds_of(life.pid)
            await works(scenario, life, 400)
            usual, host = seconds_of(life.pid) - seconds, life.address.partition(":")
            with without_descriptors(life.pid):
                # As many as its backlog holds.
                for _ in range(60):
                    stack.enter_context(socket.create_connection((host[0], int(host[2]))))
                seconds = seconds_of(life.pid)
                await works(scenario, life, 400)
                assert (await life.health())[0] == 0, "there are descriptors left"
                assert seconds_of(life.pid) - seconds < 2 * usual + 0.5, "the loop spins"
            lines = life.log.read_text().splitlines()[told:]
            assert len(lines) < 10, lines
            assert sum("no connection can be accepted" in line for line in lines) == 1
            assert (await life.health())[0] == 200
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=0))) == ""


async def test_a_member_works_on_and_its_probes_answer_while_clients_hang(
    kafka: str, tmp_path: Path
) -> None:
    """Row J2 of the faults."""
    async with playing(kafka, tmp_path) as scenario, AsyncExitStack() as stack:
        left = member(scenario, "left")
        async with scenario.load.flowing(100):
            life = left.start()
            await life.ready()
            host, _, port = life.address.partition(":")
            for number in range(300):
                client = stack.enter_context(socket.create_connection((host, int(port))))
                client.sendall(
                    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n" * (number % 2)
                )
            await works(scenario, life, 400)
            assert [
                (await life.health(path))[0]
                for path in ("/health", "/health/live", "/health/ready")
            ] == [200] * 3
        await finish(scenario)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules(duplicate_window_s=0))) == ""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Nothing can be written to it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """It is mounted again, to be read from."""
    mount("-o", "remount,ro", str(disk))
    with pytest.raises(OSError, match="Read-only"):
        (disk / "x").touch()
    yield
    mount("-o", "remount,rw", str(disk))


@pytest.mark.parametrize("broken", [full, read_only])
async def test_nothing_is_committed_beyond_what_a_full_or_read_only_disk_has(
    kafka: str, tmp_path: Path, broken: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """Rows G2, G3 of the faults."""
    with small_disk(tmp_path / "disk") as disk:
        channel = f"""
commit_strategy = "checkpoint"
[incoming.orders.checkpoint]
store = "file://{disk}"
kafka_commit_interval = "500ms"
unsynced_max_age = "2s"
"""
        async with playing(kafka, tmp_path) as scenario:
            life = member(scenario, "service", channel=channel).start()
            async with scenario.load.flowing(100):
                await life.ready()
                await works(scenario, life)
                with broken(disk):
                    await life.probe_shows("/health/ready", 503, 20)
                    stored = {path: path.read_bytes() for path in disk.rglob("*.json")}
                    rows = [json.loads(row) for row in stored.values()]
                    positions = {(row["topic"], row["partition"]): row["position"] for row in rows}
                    polls = scenario.observer.polls
                    await until(
                        lambda: scenario.observer.polls > polls + 30, 20, "three seconds of looking"
                    )
                    latest = scenario.observer.latest
                    assert {tp: at for tp, at in latest.items() if at > positions[tp]} == {}, (
                        "past the store's"
                    )
                    assert latest
                    assert (
                        stored == {path: path.read_bytes() for path in disk.rglob("*.json")} != {}
                    )
                    assert (await life.health("/health/live"))[0] == 200
                await life.probe_shows("/health/ready", 200, 20)
                await works(scenario, life)
            await finish(scenario)
            evidence = await scenario.evidence()
    assert report(check(evidence, Rules())) == ""
