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

from reactive_kafka.checkpoint.store import Checkpoint, Write, allows, checked
from reactive_kafka.errors import CorruptCheckpointError, StoreAwayError
from reactive_kafka.records import TopicPartition

ANSWER_S = 10.0
# Bytes of an encoded name; what is longer is cut and told apart by its hash.
LONGEST_NAME = 180
# bytes: a larger file is none of ours.
LARGEST = 64 * 1024 * 1024
_LOCK = ".lock"
_LOCK_EVERY_S = 0.005
# A pipe in the place of a file must not stop us.
_AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

Step = Literal["lock", "create", "write", "sync", "replace", "sync folder"]

T = TypeVar("T")


class FileStore:
    """``folder/<group>/<topic>-<partition>.json``, names percent-encoded; for one host, or a file
    system that locks.

    A file is replaced as a whole: written beside the old one, synced, renamed over it, and its
    folder synced. A crash leaves the old one or the new one. Writers take turns by an ``flock`` of
    the group's folder's ``.lock``. The folder is made if missing, with rights for its owner only.
    *step* is called before each step of a write, for tests: what it raises is a crash there. A call
      may take *answer_s*.
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

    def __repr__(self) -> str:
        return f"FileStore({str(self._folder)!r})"

    def path(self, group: str, partition: TopicPartition) -> Path:
        """Where the row of a partition is."""
        return (
            self._folder
            / _encoded(group)
            / f"{_encoded(partition.topic)}-{partition.partition}.json"
        )

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        return await self._in_thread(self._read, group, tuple(partitions))

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        return await self._in_thread(self._write, group, dict(writes))

    async def close(self) -> None:
        """No file is open between calls."""

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call in a thread; given up at the deadline, its thread ends by itself, and can do
        no harm.
        """
        self._threads = self._threads or CapacityLimiter(4)
        try:
            async with asyncio.timeout(self._answer_s):
                return await to_thread.run_sync(
                    call, *arguments, limiter=self._threads, abandon_on_cancel=True
                )
        except TimeoutError as error:
            raise StoreAwayError(
                f"{self._folder} did not answer within {self._answer_s:g} s"
            ) from error

    def _read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        with self._opened(group) as folder:
            return {
                one: row for one in partitions if (row := self._row(folder, group, one)) is not None
            }

    def _write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        with self._opened(group) as folder, self._locked(folder, group):
            return frozenset(
                one
                for one in sorted(writes)
                if not self._write_one(folder, group, one, writes[one])
            )

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
        with _told(path):
            self._replace(folder, path.name, content.encode())
        return True

    def _replace(self, folder: int, name: str, content: bytes) -> None:
        # One name: whoever has the lock is alone, and a crash leaves one file behind at most.
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
        with _told(path):
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
        """The group's folder, made if it is missing; never through a link below the store's own
        folder.
        """
        with ExitStack() as opened:
            with _told(self._folder):
                _make(self._folder)
                root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, root)
            with _told(self._folder / _encoded(group)):
                folder = _folder_in(root, _encoded(group))
            opened.callback(os.close, folder)
            yield folder

    def _wait_for(self, lock: int, path: Path) -> None:
        """Lock, trying again and again: a thread that waits inside of flock could not be given
        up.
        """
        # Over before the call is given up, so that it does not write afterwards.
        patience_s = 0.8 * self._answer_s
        give_up = time.monotonic() + patience_s
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > give_up:
                    text = f"{path} has been locked by another process for {patience_s:g} s"
                    raise StoreAwayError(text) from error
            time.sleep(_LOCK_EVERY_S)

    @contextmanager
    def _locked(self, folder: int, group: str) -> Iterator[None]:
        path = self._folder / _encoded(group) / _LOCK
        self._step("lock")
        with _told(path):
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600, dir_fd=folder)
        try:
            with _told(path):
                self._wait_for(lock, path)
            yield
        finally:
            # Which unlocks it.
            os.close(lock)


def _make(folder: Path) -> None:
    """Make it, and what is missing above it, for the owner alone: whoever may write above could put
    another there.
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
        # Another process was faster.
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=root)
        os.fsync(root)
        return os.open(name, flags, dir_fd=root)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the system as ours: the store is away (full, read-only, no rights), or the path is
    no file of ours.
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
    """A name as one part of a path: no separator, no leading dot, no longer than a file system
    takes.
    """
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    if len(encoded) > LONGEST_NAME:
        # No encoding has "%" and so many digits.
        encoded = f"{encoded[:100]}%{sha256(name.encode()).hexdigest()[:40]}"
    # The empty name.
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
    return checked(str(path), *values)


def _read_all(file: int) -> bytes:
    parts = []
    size = 0
    while part := os.read(file, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise OSError(errno.ENXIO, f"larger than {LARGEST} bytes")
    return b"".join(parts)
