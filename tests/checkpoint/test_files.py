"""A folder of files: crashes at every step, names, links, what is not ours, disks that are full."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.checkpoint.stores.files import MOST_HANGING, THREADS, FileStore, Step
from reactive_kafka.errors import CorruptCheckpointError, StoreAwayError

ORDERS = TopicPartition("orders", 0)
OLD, NEW = Checkpoint(1, 5, '{"sum": 10}', "old"), Checkpoint(1, 6, '{"sum": 11}', "new")
FIRST, NEXT = {ORDERS: Write(0, OLD)}, {ORDERS: Write(1, NEW, 5)}
STEPS = get_args(Step)


class Crash(BaseException):
    """The process ends here."""


def stops_at(where: Step, error: BaseException) -> Callable[[Step], None]:
    def step(name: Step) -> None:
        if name == where:
            raise error

    return step


@pytest.mark.parametrize("where", STEPS)
async def test_a_crash_at_any_step_leaves_the_old_row_or_the_new_one(
    tmp_path: Path, where: Step
) -> None:
    """Row G1 of the faults."""
    await FileStore(tmp_path).write("g", FIRST)
    with pytest.raises(Crash):
        await FileStore(tmp_path, step=stops_at(where, Crash())).write("g", NEXT)
    is_replaced = where == "sync folder"
    after = FileStore(tmp_path)
    assert await after.read("g", [ORDERS]) == {ORDERS: NEW if is_replaced else OLD}
    assert await after.write("g", NEXT) == (frozenset({ORDERS}) if is_replaced else frozenset())
    assert await after.read("g", [ORDERS]) == {ORDERS: NEW}


@pytest.mark.parametrize("where", ["write", "replace", "sync folder"])
async def test_a_process_that_is_killed_at_any_step_leaves_one_of_them_and_no_lock(
    tmp_path: Path, where: Step
) -> None:
    """Row G1 of the faults."""
    await FileStore(tmp_path).write("g", FIRST)
    code = f"""
import asyncio, os, signal
from pathlib import Path
from tests.checkpoint.test_files import NEXT, FileStore
die = lambda step: step == {where!r} and os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(FileStore(Path({str(tmp_path)!r}), step=die).write("g", NEXT))
"""
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], cwd=Path(__file__).parents[2]
    )
    assert killed.returncode == -9
    row = (await FileStore(tmp_path).read("g", [ORDERS]))[ORDERS]
    assert row == (NEW if where == "sync folder" else OLD)
    assert (
        await FileStore(tmp_path).write("g", {ORDERS: Write(1, Checkpoint(1, 9), row.position)})
        == frozenset()
    )


async def test_the_file_is_on_the_disk_before_it_replaces_the_old_one_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def synced(file: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{file}').readlink().name}")

    def renamed(old: str, new: str, **folders: int) -> None:
        done.append(f"{old} -> {new}")
        rename(old, new, **folders)

    rename = os.rename
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    await FileStore(tmp_path).write("g", FIRST)
    new = ".orders-0.json.new"
    assert done == [f"sync {tmp_path.name}", f"sync {new}", f"{new} -> orders-0.json", "sync g"]


@pytest.mark.parametrize("length", [0, 1, 40, -2])
async def test_a_cut_file_is_named(tmp_path: Path, length: int) -> None:
    """Row G5 of the faults."""
    store = FileStore(tmp_path)
    await store.write("g", FIRST)
    path = store.path("g", ORDERS)
    path.write_bytes(path.read_bytes()[:length])
    for call in (store.read("g", [ORDERS]), store.write("g", NEXT)):
        with pytest.raises(CorruptCheckpointError, match=r"g/orders-0\.json is cut"):
            await call


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"token": 0}, "its token is 0"),
        ({"token": True}, "its token is True"),
        ({"position": -1}, "its position is -1"),
        ({"position": "7"}, "its position is '7'"),
        ({"state": {"sum": 1}}, "its state is dict"),
        ({"metadata": None}, "its metadata is NoneType"),
        ({"group": "other"}, "is for"),
        ({"partition": 1}, "is for"),
        ({"version": 2}, "version 2"),
    ],
)
async def test_a_file_that_is_none_of_ours_is_named(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    """Row G5 of the faults."""
    store = FileStore(tmp_path)
    await store.write("g", FIRST)
    path = store.path("g", ORDERS)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CorruptCheckpointError, match=rf"orders-0\.json .*{told}"):
        await store.read("g", [ORDERS])


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b"7", b"\xff\xfe", b"[" * 100_000, b"\0" * 4096]
)
async def test_a_file_of_anything_else_is_named(tmp_path: Path, content: bytes) -> None:
    store = FileStore(tmp_path)
    await store.write("g", FIRST)
    store.path("g", ORDERS).write_bytes(content)
    with pytest.raises(
        CorruptCheckpointError, match=r"orders-0\.json is cut, damaged, or no checkpoint"
    ):
        await store.read("g", [ORDERS])


async def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    """Row S11 of the faults."""
    folder = tmp_path / "store"
    names = [
        "..",
        ".",
        "",
        "../x",
        "/etc",
        "a/b",
        ".lock",
        "x" * 1000,
        "ü" * 300,
        "new\nline",
        "%2E",
        "a\0b",
    ]
    store = FileStore(folder)
    for number, name in enumerate(names):
        partition = TopicPartition(name, number)
        assert await store.write(name, {partition: Write(0, Checkpoint(1, number))}) == frozenset()
    for number, name in enumerate(names):
        partition = TopicPartition(name, number)
        assert await store.read(name, [partition]) == {partition: Checkpoint(1, number)}
    files = [path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.json")]  # noqa: ASYNC240
    assert len(files) == len(names)
    assert all(len(parts) == 3 and parts[0] == "store" for parts in files)


@given(st.text(), st.text())
def test_two_names_never_share_a_file(one: str, other: str) -> None:
    store = FileStore(Path("/"))
    try:
        paths = {store.path(name, TopicPartition(name, 0)) for name in (one, other)}
    except UnicodeEncodeError:
        # Half of a surrogate pair: no name of Kafka's.
        return
    assert len(paths) == len({one, other})
    assert all(len(path.parts) == 3 for path in paths)


async def test_only_the_owner_may_read_what_is_written(tmp_path: Path) -> None:
    """Row S11 of the faults."""
    os.umask(before := os.umask(0))
    try:
        os.umask(0)
        store = FileStore(tmp_path / "a" / "b")
        await store.write("g", FIRST)
    finally:
        os.umask(before)
    path = store.path("g", ORDERS)
    files = [path, path.parent / ".lock", path.parent, path.parent.parent, tmp_path / "a"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [
        0o600,
        0o600,
        0o700,
        0o700,
        0o700,
    ]


@pytest.mark.parametrize("place", ["orders-0.json", ".lock", ".orders-0.json.new"])
async def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, place: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    store = FileStore(tmp_path / "store")
    await store.write("g", FIRST)
    path = store.path("g", ORDERS).parent / place
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    with pytest.raises(CorruptCheckpointError, match="link"):
        await store.write("g", NEXT)
    assert victim.read_text() == "precious"


async def test_a_link_in_the_place_of_a_groups_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "g").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpointError, match="store/g is a link"):
        await FileStore(tmp_path / "store").write("g", FIRST)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_pipe_in_the_place_of_a_file_stops_nobody(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.write("g", FIRST)
    path = store.path("g", ORDERS)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptCheckpointError, match=r"orders-0\.json"):
        await store.read("g", [ORDERS])


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EACCES]
)
@pytest.mark.parametrize("where", ["create", "write", "sync", "replace"])
async def test_a_disk_that_is_full_or_broken_is_away_and_the_old_row_stays(
    tmp_path: Path, number: int, where: Step
) -> None:
    """Rows G2, G3 of the faults."""
    await FileStore(tmp_path).write("g", FIRST)
    store = FileStore(tmp_path, step=stops_at(where, OSError(number, os.strerror(number))))
    with pytest.raises(StoreAwayError, match=rf"g/orders-0\.json: {os.strerror(number)}") as away:
        await store.write("g", NEXT)
    assert isinstance(away.value.__cause__, OSError)
    assert await FileStore(tmp_path).read("g", [ORDERS]) == {ORDERS: OLD}
    assert await FileStore(tmp_path).write("g", NEXT) == frozenset()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CorruptCheckpointError, match="file/store"):
        await FileStore(tmp_path / "file" / "store").read("g", [ORDERS])


async def test_a_lock_that_another_process_keeps_is_waited_for(tmp_path: Path) -> None:
    store = FileStore(tmp_path, answer_s=0.2)
    await store.write("g", FIRST)
    with (tmp_path / "g" / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert await store.read("g", [ORDERS]) == {ORDERS: OLD}
        with pytest.raises(StoreAwayError, match=r"g/\.lock has been locked"):
            await store.write("g", NEXT)
    assert await FileStore(tmp_path).write("g", NEXT) == frozenset()


async def test_a_call_that_was_given_up_writes_no_further_row(tmp_path: Path) -> None:
    continues = threading.Event()

    def step(name: Step) -> None:
        if name == "sync":
            continues.wait(10)

    store = FileStore(tmp_path, step=step, answer_s=0.1)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    with pytest.raises(StoreAwayError, match="did not answer"):
        await store.write("g", {partition: Write(0, OLD) for partition in partitions})
    continues.set()
    later = FileStore(tmp_path)
    # It waits for the lock of the first call.
    assert await later.write("g", {partitions[0]: Write(0, OLD)}) == {partitions[0]}
    assert await later.read("g", partitions) == {partitions[0]: OLD}


async def test_the_loop_goes_on_while_a_disk_hangs(tmp_path: Path) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def step(name: Step) -> None:
        if name == "sync":
            hangs.set()
            goes_on.wait(10)

    store = FileStore(tmp_path, step=step, answer_s=0.1)
    with pytest.raises(StoreAwayError, match="did not answer"):
        await store.write("g", FIRST)
    assert hangs.is_set()
    # And the write lands late.
    goes_on.set()
    later = FileStore(tmp_path)
    assert await later.write("g", FIRST) == {ORDERS}
    assert await later.read("g", [ORDERS]) == {ORDERS: OLD}


async def test_a_disk_that_hangs_for_long_takes_only_a_few_threads(tmp_path: Path) -> None:
    goes_on = threading.Event()

    def step(name: Step) -> None:
        if name == "lock":
            goes_on.wait(10)

    store = FileStore(tmp_path, step=step, answer_s=0.01)
    before = threading.active_count()
    for _ in range(3 * MOST_HANGING):
        with pytest.raises(StoreAwayError, match=r"did not answer|does not answer: 8 earlier"):
            await store.write("g", FIRST)
    try:
        # On a busy machine a call may be given up before its thread has begun it. Such a thread
        # takes the next call.
        assert threading.active_count() - before <= MOST_HANGING + THREADS
    finally:
        goes_on.set()
    async with asyncio.timeout(10):
        while True:
            with suppress(StoreAwayError):
                assert await store.read("g", [ORDERS]) == {}
                return
            await asyncio.sleep(0.01)
