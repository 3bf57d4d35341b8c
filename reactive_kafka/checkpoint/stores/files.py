"""A folder with one JSON file for each partition of each group."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread

from reactive_kafka.checkpoint.store import Checkpoint, Write, allows, validated_row
from reactive_kafka.errors import CorruptCheckpointError, StoreAwayError
from reactive_kafka.records import TopicPartition

ANSWER_S = 10.0
"""How long a call may take."""
PATIENCE = 0.8
"""The share of that time after which a write begins no further row."""
THREADS = 4
"""How many calls of one store run at a time."""
MOST_HANGING = 8
"""With so many calls in threads, those that were given up included, no further one begins. Without
a limit there would be a thread for each attempt while a network file system hangs.
"""
LONGEST_NAME = 180
"""Bytes of an encoded name. A longer one is cut, and made unique by its hash."""
LARGEST = 64 * 1024 * 1024
"""Bytes of a file. A larger one was not written by us."""
_LOCK = ".lock"
_LOCK_EVERY_S = 0.005
# Not blocking: opening a pipe that was put in the place of a file would wait for ever.
_AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

Step = Literal["lock", "create", "write", "sync", "replace", "sync folder"]
"""The steps of a write, for tests."""

T = TypeVar("T")


class FileStore:
    """Files ``folder/<group>/<topic>-<partition>.json``, with percent-encoded names.

    It is for members on one host, or for a file system with locks.

    A file is replaced as a whole: the new one is written next to the old one, synced, and renamed
    over it, and the folder is synced. After a crash there is the old file or the new one. Writers
    take turns by an ``flock`` of ``.lock`` in the group's folder.

    Args:
        folder: The store's folder. If it is missing it is made, with rights for its owner only.
        step: Called before each step of a write, for tests. An error that it raises is a crash
            there.
        answer_s: How long a call may take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        step: Callable[[Step], None] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._folder = folder
        self._answer_s = answer_s
        self._step = step or (lambda _: None)
        self._threads: CapacityLimiter | None = None
        # The calls that are in a thread, those that were given up included.
        self._running: set[object] = set()

    def __repr__(self) -> str:
        return f"FileStore({str(self._folder)!r})"

    def path(self, group: str, partition: TopicPartition) -> Path:
        """Return the path of a partition's row."""
        name = f"{_encoded(partition.topic)}-{partition.partition}.json"
        return self._folder / _encoded(group) / name

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        return await self._in_thread(self._read, group, tuple(partitions))

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        # This ends before the call is given up, so that an abandoned call does not write.
        until = time.monotonic() + PATIENCE * self._answer_s
        return await self._in_thread(self._write, group, dict(writes), until)

    async def close(self) -> None:
        """Do nothing: no file is open between calls."""

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call in a thread, and give it up at the deadline.

        The thread of an abandoned call ends by itself, when the system answers. It may complete the
        row that it is writing, and begins no other.
        """
        if len(self._running) >= MOST_HANGING:
            raise StoreAwayError(
                f"{self._folder} does not answer: {len(self._running)} earlier calls wait for it"
            )
        self._threads = self._threads or CapacityLimiter(THREADS)
        this_call = object()

        def run() -> T:
            self._running.add(this_call)
            try:
                return call(*arguments)
            finally:
                self._running.discard(this_call)

        try:
            async with asyncio.timeout(self._answer_s):
                return await to_thread.run_sync(run, limiter=self._threads, abandon_on_cancel=True)
        except TimeoutError as error:
            raise StoreAwayError(
                f"{self._folder} did not answer within {self._answer_s:g} s"
            ) from error

    def _read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        rows = {}
        with self._opened(group) as folder:
            for partition in partitions:
                row = self._row(folder, group, partition)
                if row is not None:
                    rows[partition] = row
        return rows

    def _write(
        self, group: str, writes: Mapping[TopicPartition, Write], until: float
    ) -> frozenset[TopicPartition]:
        refused = set()
        with self._opened(group) as folder, self._locked(folder, group, until):
            for partition in sorted(writes):
                if time.monotonic() > until:
                    raise StoreAwayError(f"{self._folder} takes too long to write")
                if not self._write_one(folder, group, partition, writes[partition]):
                    refused.add(partition)
        return frozenset(refused)

    def _write_one(self, folder: int, group: str, partition: TopicPartition, write: Write) -> bool:
        if not allows(self._row(folder, group, partition), write):
            return False
        row = {
            "version": 1,
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
        }
        content = json.dumps({**row, **write.checkpoint._asdict()}, indent=1) + "\n"
        path = self.path(group, partition)
        with _translated_errors(path):
            self._replace(folder, path.name, content.encode())
        return True

    def _replace(self, folder: int, name: str, content: bytes) -> None:
        # Always the same name: only the owner of the lock writes it, and a crash leaves at most one
        # such file.
        new = f".{name}.new"
        self._step("create")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _AS_IT_IS
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "wb") as file:
            self._step("write")
            file.write(content)
            file.flush()
            self._step("sync")
            os.fsync(file.fileno())
        self._step("replace")
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._step("sync folder")
        os.fsync(folder)

    def _row(self, folder: int, group: str, partition: TopicPartition) -> Checkpoint | None:
        path = self.path(group, partition)
        with _translated_errors(path):
            try:
                file = os.open(path.name, os.O_RDONLY | _AS_IT_IS, dir_fd=folder)
            except FileNotFoundError:
                return None
            try:
                content = _read_all(file)
            finally:
                os.close(file)
        return _parsed(path, content, group, partition)

    @contextmanager
    def _opened(self, group: str) -> Iterator[int]:
        """Open the group's folder, and make it if it is missing.

        Links are not followed below the store's own folder.
        """
        with ExitStack() as opened:
            with _translated_errors(self._folder):
                _make(self._folder)
                root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, root)
            with _translated_errors(self._folder / _encoded(group)):
                folder = _folder_in(root, _encoded(group))
            opened.callback(os.close, folder)
            yield folder

    def _wait_for(self, lock: int, path: Path, until: float) -> None:
        """Take the lock. It is polled, because a thread that waits in flock cannot be stopped."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                now = time.monotonic()
                if now > until:
                    text = f"{path} has been locked by another process for {now - began:.1f} s"
                    raise StoreAwayError(text) from error
            time.sleep(_LOCK_EVERY_S)

    @contextmanager
    def _locked(self, folder: int, group: str, until: float) -> Iterator[None]:
        path = self._folder / _encoded(group) / _LOCK
        self._step("lock")
        with _translated_errors(path):
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600, dir_fd=folder)
        try:
            with _translated_errors(path):
                self._wait_for(lock, path, until)
            yield
        finally:
            # Closing the file releases the lock.
            os.close(lock)


def _make(folder: Path) -> None:
    """Make a folder and its missing parents, for the owner alone.

    Others who may write to a parent could put another folder in its place.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _folder_in(root: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=root)
    except FileNotFoundError:
        # Another process may have made it meanwhile.
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=root)
        os.fsync(root)
        return os.open(name, flags, dir_fd=root)


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Translate errors of the system.

    Raises:
        CorruptCheckpointError: The path is a link, or is no file or folder of ours.
        StoreAwayError: Any other error: the disk is full, it is read-only, a right is missing.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
            raise CorruptCheckpointError(
                f"{path} is a link, or no file or folder of this store: {error}"
            ) from error
        raise StoreAwayError(f"{path}: {error.strerror or error}") from error


def _encoded(name: str) -> str:
    """Return a name that fits into a path: no separator, no leading dot, not too long."""
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    if len(encoded) > LONGEST_NAME:
        # An encoded name never has so many digits after a "%", so this one cannot be another's.
        encoded = f"{encoded[:100]}%{sha256(name.encode()).hexdigest()[:40]}"
    # A name can be empty, a file's name cannot.
    return encoded or "%"


def _parsed(path: Path, content: bytes, group: str, partition: TopicPartition) -> Checkpoint:
    try:
        row = json.loads(content)
        named = (row["version"], row["group"], row["topic"], row["partition"])
        values = (row["token"], row["position"], row["state"], row["metadata"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"{path} is cut, damaged, or no checkpoint of ours: {error!r:.120}"
        ) from error
    if named != (1, group, *partition):
        raise CorruptCheckpointError(
            f"{path} is for {named[1:]} (version {named[0]!r}), not for {(group, *partition)}"
        )
    return validated_row(str(path), *values)


def _read_all(file: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        chunk = os.read(file, 1 << 20)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST:
            # This errno counts as "no file of ours".
            raise OSError(errno.ENXIO, f"larger than {LARGEST} bytes")
